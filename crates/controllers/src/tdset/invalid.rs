//! What is wrong with a spec that cannot be acted on. Pure.

/// A spec that cannot be acted on. Nothing is changed until it, or what it is about, changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Invalid {
    /// A time zone that the database does not know.
    #[error("{name:?} is not an IANA time zone: write it like Europe/Berlin, or UTC")]
    Zone { name: String },
    /// An expression that is none of cron's.
    #[error(
        "cron expression {expression:?} cannot be used, {problem}: write minute, hour, day of month, month \
         and day of week, as \"0 9 * * 1-5\""
    )]
    Cron { expression: String, problem: String },
    /// A date that cannot be used.
    #[error("the schedule has the date {text:?}: {why}")]
    Date { text: String, why: &'static str },
    /// Not exactly one workload.
    #[error("spec has {count} of container, template and targetRef: give exactly one")]
    Workloads { count: usize },
    /// A template that is none.
    #[error("spec.template is not a Pod template: {why}")]
    Template { why: String },
    /// A Deployment that was taken over, or would be, and has more containers than the spec.
    #[error(
        "Deployment {deployment} has the containers {names}, which the spec does not name: as others wrote them too, it \
         would keep them beside those of the spec; give a container of the spec that name, name them all in spec.template, or \
         remove them from the Deployment"
    )]
    Containers { deployment: String, names: String },
    /// A name that no object has.
    #[error(
        "spec.targetRef.name is {name:?}, which is no name of an object: write lower-case letters, digits, '-' and '.'"
    )]
    Name { name: String },
    /// A Service for a workload whose Pods are not known.
    #[error("spec.service is for the Pods that the TDSet makes: remove it, or spec.targetRef")]
    Service,
    /// A kind that the administrator does not list.
    #[error(
        "spec.targetRef may name {allowed}, not {kind} of {api_version}: name one of these, or ask the \
         administrator of the manager to list the kind in controllers.tdset.targets"
    )]
    Kind { kind: String, api_version: String, allowed: String },
}

impl Invalid {
    /// The reason of the condition.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Zone { .. } => "InvalidTimeZone",
            Self::Cron { .. } | Self::Date { .. } => "InvalidSchedule",
            Self::Kind { .. } => "NotPermitted",
            Self::Containers { .. } => "ContainersLeft",
            Self::Workloads { .. } | Self::Template { .. } | Self::Name { .. } | Self::Service => {
                "Invalid"
            }
        }
    }
}
