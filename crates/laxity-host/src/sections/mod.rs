//! The sections of a host file. A section's file has its table (the keys as written), its model (the resolved values)
//! and its checks. What must fit between sections is checked in `order`.

pub(crate) mod caches;
pub(crate) mod calls;
pub(crate) mod costs;
pub(crate) mod domain;
pub(crate) mod draw;
pub(crate) mod helpers;
pub(crate) mod host;
pub(crate) mod link;
pub(crate) mod network;
pub(crate) mod nic;
pub(crate) mod parameters;
pub(crate) mod protect;
pub(crate) mod run;
pub(crate) mod settings;
pub(crate) mod tasks;
pub(crate) mod tick;
pub(crate) mod workload;
