//! What the engine shows: look-ups that a loop asks all the time, and whole views.

mod lookup;
mod view;
