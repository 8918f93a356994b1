//! Each dialect's tables: what is a way out, what is asked for, what a recorded answer's usage comes to.

mod asked;
mod ways_out;
