//! Raw API keys never leave the proxy: planted keys are looked for wherever bytes go.
