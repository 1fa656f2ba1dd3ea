//! Storms over the policies with one order for all CPUs: Laxity's, and the models of Linux's.

mod linux;
mod machine;
mod servers;
