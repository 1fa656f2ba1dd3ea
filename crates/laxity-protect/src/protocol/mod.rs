//! The protocol of a pair of hosts that protect one virtual machine.
//!
//! A `Node` is one host's part in it, as a primary or as a standby. It has no clock and does no I/O:
//! events come in with the time of the host's monotonic clock, and actions go out, to be carried out in
//! their order.
