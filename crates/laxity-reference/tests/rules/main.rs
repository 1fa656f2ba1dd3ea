//! The tests of the reference itself.

mod differences;
mod invariants;
mod rules;
mod support;
