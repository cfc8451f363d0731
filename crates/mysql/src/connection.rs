//! The way to an instance: a port-forward through its cluster's API server, cut when the reconcile ends or
//! the shard is handed over.
//!
//! It leads to the port that mysqld keeps for administration within the Pod: there is always room for one
//! more connection, also when all that clients may have wait for acknowledgements.

use futures::FutureExt;
use futures::future::BoxFuture;
use sdk::Context;

use crate::calls::{Account, Address, Gateway, Knowledge, MySqlError, Password, Session, Writer};
use crate::config::ADMIN_PORT;
use crate::session::{self, Locked, Talk, Unlocked};

/// Reaches instances by port-forward.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PodGateway;

/// Logs in as the manager, with the newest password that is accepted, or else as root.
async fn talk(ctx: &Context, to: &Address) -> Result<Talk, MySqlError> {
    let mut denied = None;
    let own = to.passwords.iter().map(|password| (Account::Leasehold, password));
    let all = own.chain(to.root.iter().map(|password| (Account::Root, password)));
    for (place, (account, password)) in all.enumerate() {
        let stream = ctx.pod(&to.namespace, &to.pod).dial(ADMIN_PORT).await;
        let stream = stream.map_err(|error| unreached(to, error.into()))?;
        let knows = match account {
            Account::Root => Knowledge::None,
            _ if place == 0 => Knowledge::Newest,
            _ => Knowledge::Earlier,
        };
        match session::log_in(to, stream, (account, password), ctx.now()).await {
            Ok(talk) => return Ok(Talk { knows, ..talk }),
            Err(error) if error.is_denied() || account == Account::Root => {
                denied.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(denied.unwrap_or_else(|| unreached(to, "there is no password".into())))
}

fn unreached(to: &Address, source: Box<dyn std::error::Error + Send + Sync>) -> MySqlError {
    MySqlError::Unreached { pod: to.pod.clone(), source }
}

impl Gateway for PodGateway {
    fn open<'a>(
        &'a self,
        ctx: &'a Context,
        to: &'a Address,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, MySqlError>> {
        async move {
            let mut talk = talk(ctx, to).await?;
            talk.lock().await?;
            Ok(Box::new(Locked(talk)) as Box<dyn Session>)
        }
        .boxed()
    }

    fn proves<'a>(
        &'a self,
        ctx: &'a Context,
        to: &'a Address,
        account: Account,
        password: &'a Password,
    ) -> BoxFuture<'a, Result<bool, MySqlError>> {
        async move {
            let stream = ctx.pod(&to.namespace, &to.pod).dial(ADMIN_PORT).await;
            let stream = stream.map_err(|error| unreached(to, error.into()))?;
            match session::log_in(to, stream, (account, password), ctx.now()).await {
                Err(error) if error.is_denied() => Ok(false),
                done => done.map(|_| true),
            }
        }
        .boxed()
    }

    fn write<'a>(
        &'a self,
        ctx: &'a Context,
        to: &'a Address,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, MySqlError>> {
        async move { Ok(Box::new(Unlocked(talk(ctx, to).await?)) as Box<dyn Writer>) }.boxed()
    }
}
