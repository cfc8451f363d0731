//! What the role label of a Pod says, by which the Services choose it. Pure.

/// What a role label says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Primary,
    Replica,
}

impl Role {
    /// The label's value.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Replica => "replica",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Primary, Self::Replica].into_iter().find(|role| role.as_str() == text)
    }
}
