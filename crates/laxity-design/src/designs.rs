//! Every group of a host, with its values.

use laxity_host::{Host, Open};
use rayon::prelude::*;

use crate::group::Group;
use crate::request::Request;
use crate::search::{Effort, Search};

/// Steps of the search for the greatest factor of costs: one part in a thousand.
const FACTOR_STEPS: usize = 12;

/// No factor of costs beyond this is looked for.
const FACTOR_MAX: f64 = 16.0;

/// A group that has no values, and the effort with which they were looked for.
#[derive(Debug)]
pub(crate) struct Failed {
    pub group: Group,
    pub effort: Effort,
}

/// Every group with its values, or one that has none.
pub(crate) fn groups_designed(
    host: &Host,
    open: &Open,
    request: Request,
    effort: Effort,
) -> Result<Vec<Group>, Box<Failed>> {
    let groups = Group::all(host, open);
    let effort = effort.among(groups.len());
    groups
        .into_par_iter()
        .map(|group| designed(group, request, effort))
        .collect()
}

/// The group with values for what is open.
fn designed(group: Group, request: Request, effort: Effort) -> Result<Group, Box<Failed>> {
    let Some(domains) = Search::new(&group, effort).run() else {
        return Err(Box::new(Failed { group, effort }));
    };
    if !request.most_room {
        return Ok(group.with_domains(domains));
    }
    let (mut held, mut held_domains) = (1.0, domains);
    let mut failed = FACTOR_MAX;
    for _ in 0..FACTOR_STEPS {
        let factor = f64::sqrt(held * failed);
        let scaled = group.scaled(|_, _| factor);
        match scaled.and_then(|scaled| Search::new(&scaled, effort.less()).run()) {
            Some(domains) => (held, held_domains) = (factor, domains),
            None => failed = factor,
        }
    }
    // The values are those for greater costs; the tasks are as they were.
    for (domain, own) in held_domains.iter_mut().zip(&group.host.domains) {
        domain.tasks.clone_from(&own.tasks);
    }
    let mut group = group.with_domains(held_domains);
    group.room_factor = Some(held);
    Ok(group)
}
