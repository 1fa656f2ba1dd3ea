//! The effort of analysis: how far it searches before it settles for a coarser bound.

use crate::time::Ns;

/// How closely a CPU is looked at. More effort never guarantees less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// For a search over many hosts.
    Little,
    Full,
}

impl Effort {
    /// How many neighbouring stretches of a sporadic server are looked at together.
    pub fn stretches(self) -> &'static [Ns] {
        match self {
            Effort::Little => &[1],
            Effort::Full => &[1, 2, 4],
        }
    }

    /// Whether response times of EDF guests are searched for, or only whether their deadlines hold.
    pub fn searches_edf(self) -> bool {
        self == Effort::Full
    }
}
