//! Every group of a host, with its values.

use laxity_host::{Domain, Host, Open};
use rayon::prelude::*;

use crate::group::Group;
use crate::request::{Aim, Request};
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
    let all: Vec<_> = groups
        .into_par_iter()
        .map(|group| designed(group, request, effort))
        .collect();
    // The first that failed, whichever thread was first.
    all.into_iter().collect()
}

/// The group with values for what is open.
fn designed(group: Group, request: Request, effort: Effort) -> Result<Group, Box<Failed>> {
    // A cost beyond its deadline is refused before.
    let grown = group.clone().grown(request.growth());
    let Some(domains) = Search::new(&grown, effort).run() else {
        let group = grown;
        return Err(Box::new(Failed { group, effort }));
    };
    Ok(match request.aim {
        Aim::LeastTime => group.with_domains(domains),
        Aim::Room(factor) => group.with_room(factor, domains),
        Aim::MostRoom => with_most_room(group, domains, effort),
    })
}

/// The group with values for the greatest costs; `domains` has values for costs as they are.
fn with_most_room(group: Group, domains: Vec<Domain>, effort: Effort) -> Group {
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
    group.with_room(held, held_domains)
}
