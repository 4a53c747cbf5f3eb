//! The example gateway in front of the example upstream, governed by a real daemon: what survives which death.
