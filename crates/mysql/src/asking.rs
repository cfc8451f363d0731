//! Looks at instances: those that run, the primary last.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use sdk::Context;
use tokio::time::timeout;

use crate::calls::{Address, Gateway, Knowledge, MySqlError, Session};
use crate::server::{Look, Silence};

/// The longest text of a server that is repeated, in characters.
const MAX_TROUBLE: usize = 300;

/// What instances said, and the sessions in which they did.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) looks: BTreeMap<String, Result<Look, Silence>>,
    pub(crate) sessions: BTreeMap<String, Box<dyn Session>>,
    /// Whether one found the manager's passwords wrong. What was read of them may be old.
    pub(crate) is_denied: bool,
    /// Those that let in neither the manager nor root.
    pub(crate) closed: Vec<String>,
}

/// Looks at instances, each within its `patience`. `last` is the one whose word decides about the others,
/// so it is heard after them.
pub(crate) async fn ask(
    ctx: &Context,
    gateway: &dyn Gateway,
    instances: Vec<Address>,
    last: Option<&str>,
    patience: impl Fn(&str) -> Duration,
) -> Asked {
    let (last, first): (Vec<_>, Vec<_>) =
        instances.into_iter().partition(|to| Some(to.pod.as_str()) == last);
    let mut asked = Asked::default();
    for group in [first, last] {
        let said = group.iter().map(|to| ask_one(ctx, gateway, to, patience(&to.pod)));
        let said = join_all(said).await;
        for (to, said) in group.iter().zip(said) {
            asked.note(&to.pod, said);
        }
    }
    asked
}

async fn ask_one(
    ctx: &Context,
    gateway: &dyn Gateway,
    to: &Address,
    patience: Duration,
) -> Result<(Look, Box<dyn Session>), MySqlError> {
    let look = async {
        let mut session = gateway.open(ctx, to).await?;
        Ok((session.look().await?, session))
    };
    let slow = |_| MySqlError::Slow {
        pod: to.pod.clone(),
        what: "look at mysqld",
        seconds: patience.as_secs(),
    };
    timeout(patience, look).await.map_err(slow)?
}

impl Asked {
    fn note(&mut self, pod: &str, said: Result<(Look, Box<dyn Session>), MySqlError>) {
        let look = match said {
            Ok((look, session)) => {
                self.is_denied |= session.knows() == Knowledge::None;
                self.sessions.insert(pod.to_owned(), session);
                Ok(look)
            }
            Err(error) => {
                if error.is_denied() {
                    self.is_denied = true;
                    self.closed.push(pod.to_owned());
                }
                let text: String = sdk::error::chain(&error).chars().take(MAX_TROUBLE).collect();
                tracing::debug!(pod, error = text, "an instance does not answer");
                let is_cloning = matches!(error, MySqlError::Cloning { .. });
                Err(Silence { why: text, is_cloning })
            }
        };
        self.looks.insert(pod.to_owned(), look);
    }
}
