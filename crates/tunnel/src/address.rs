//! How a Tunnel gets the address that outlives its hosts, and gives it back. Shell.

use sdk::{Action, ReconcileError};

use crate::account::ProviderClient;
use crate::api::{Placement, ReservedAddress};
use crate::names;
use crate::plan::{Mark, POLL, keep};
use crate::provider::{Address, AddressRequest, Host, Kind, State};
use crate::reconcile::{SOON, TunnelRun};
use crate::stable::{self, Step};

impl TunnelRun<'_> {
    /// Whether addresses have to be looked at: the Tunnel wants one, or may have one.
    pub(super) fn may_have_address(&self, wants: bool) -> bool {
        let status = self.status();
        wants || status.address.is_some() || status.reserving_since.is_some()
    }

    /// Of all addresses of an account, the Tunnel's.
    pub(super) fn own_addresses(&self, provider: &ProviderClient, all: &[Address]) -> Vec<Address> {
        let recorded = self.status().address;
        let is_sealed = |found: &&ReservedAddress| found.seal == self.seal(provider, &found.id);
        stable::own(&self.uid(), recorded.as_ref().filter(is_sealed), all)
    }

    fn seal(&self, provider: &ProviderClient, id: &str) -> String {
        provider.account.seal(&format!("{} {id}", self.uid()))
    }

    /// The address that the Tunnel has, if it is to have one and that is all well; else what was done about it. `wanted`
    /// is where it is to have one.
    pub(super) async fn address(
        &mut self,
        provider: &ProviderClient,
        wanted: Option<&Placement>,
        hosts: &[Host],
        all: &[Address],
    ) -> Result<Result<Option<Address>, Action>, ReconcileError> {
        let (status, own) = (self.status(), self.own_addresses(provider, all));
        let running: Vec<_> = hosts.iter().filter(|host| host.state == State::Running).collect();
        let host = keep(&status, &running).map(|host| host.id.clone());
        let tells = provider.account.provider.tells_address();
        let can = tells || host.is_some();
        match stable::step(wanted, &status, &own, can, self.ctx.now()) {
            Step::Release(surplus) => {
                self.release_addresses(provider, &surplus).await?;
                let recorded = status.address.map(|recorded| recorded.id);
                if surplus.iter().any(|address| Some(&address.id) == recorded.as_ref()) {
                    self.mark(&Mark::Addressed(None)).await?;
                }
                Ok(Err(Action::RequeueAfter(SOON)))
            }
            Step::Await(wait) => Ok(Err(Action::RequeueAfter(wait))),
            Step::Leave => Ok(Ok(None)),
            Step::Reserve => match wanted {
                Some(at) => {
                    let host = host.filter(|_| !tells);
                    self.reserve(provider, at, host).await.map(Err)
                }
                None => Ok(Ok(None)),
            },
            Step::Have(address) => {
                let known = address.as_ref().map(|Address { id, ip, .. }| ReservedAddress {
                    id: id.clone(),
                    ip: ip.clone(),
                    seal: self.seal(provider, id),
                });
                // One that is recorded and that no list shows may be shown again.
                let unseen = known.is_none() && wanted.is_some() && status.address.is_some();
                let is_told = known == status.address && status.reserving_since.is_none();
                if !unseen && !is_told && !self.mark(&Mark::Addressed(known)).await? {
                    return Ok(Err(Action::Done));
                }
                Ok(Ok(address))
            }
        }
    }

    /// Requests an address. The mark of the request is written first.
    async fn reserve(
        &mut self,
        provider: &ProviderClient,
        at: &Placement,
        host: Option<String>,
    ) -> Result<Action, ReconcileError> {
        let request = AddressRequest {
            name: names::host(&self.uid()),
            tags: self.tags().await?,
            region: at.region.clone(),
            host,
            now: self.ctx.now(),
        };
        if !self.mark(&Mark::Reserving(at.clone())).await? {
            return Ok(Action::Done);
        }
        let error = match provider.reserve(request).await {
            Ok(_) => return Ok(Action::RequeueAfter(SOON)),
            Err(error) => error,
        };
        let failure = error.failure();
        // The next look will find it.
        if failure.is_some_and(|found| found.kind == Kind::Exists) {
            return Ok(Action::RequeueAfter(POLL));
        }
        if failure.is_some_and(|found| found.changed_nothing()) {
            self.mark(&Mark::Addressed(None)).await?;
        }
        Err(error.into())
    }

    /// Gives up addresses.
    pub(super) async fn release_addresses(
        &self,
        provider: &ProviderClient,
        addresses: &[Address],
    ) -> Result<(), ReconcileError> {
        for address in addresses {
            provider.release(&address.id).await?;
        }
        Ok(())
    }
}
