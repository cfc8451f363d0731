//! What providers with an API of JSON over HTTP have in common: a collection of hosts that is listed
//! by pages, and one host in it; and the same of addresses that outlive hosts.

use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::http::Api;
use super::{Address, AddressRequest, Call, Failure, Host, HostRequest, Kind, Provider};
use crate::names::Tag;

/// The differences between these APIs.
pub(super) trait Dialect: Send + Sync + 'static {
    /// The provider's name.
    const NAME: &'static str;
    /// The API's own address.
    const ENDPOINT: &'static str;
    /// The API's word for hosts, in paths and lists.
    const HOSTS: &'static str;
    /// The API's word for one host, in an answer.
    const HOST: &'static str;
    /// Hosts on a page: the most that the API allows.
    const PAGE: usize;
    /// Pages of one list, at most: a list that does not end is an error.
    const MAX_PAGES: usize;
    /// The part of a query that selects the hosts of Tunnels; empty where only whole tags can be asked for, and all
    /// hosts of the account are listed.
    const OURS: &'static str;
    /// Where a page says that another follows.
    const NEXT: &'static str;
    /// A host in an answer.
    type Item: DeserializeOwned + Into<Host>;
    /// The API's word for addresses that outlive hosts, in paths and lists.
    const ADDRESSES: &'static str;
    /// The API's word for one such address, in an answer.
    const ADDRESS: &'static str;
    /// Whether a host must know such an address when it is created.
    const TELLS_ADDRESS: bool;
    /// Such an address in an answer.
    type Place: DeserializeOwned + Into<Address>;

    /// The part of a query that selects hosts with a tag.
    fn tagged(tag: &Tag) -> String;
    /// The body of a request for a host.
    fn body(request: &HostRequest) -> Value;
    /// The body of a request for an address.
    fn address_body(request: &AddressRequest) -> Value;
    /// The path, below an address, and the body of a request to give it to a host.
    fn assignment(host: u64) -> (&'static str, Value);
    /// What a refusal means, and its message.
    fn judge(status: StatusCode, body: &Value) -> (Kind, String);
}

/// The hosts of one account.
pub(super) struct Rest<D> {
    api: Arc<Api>,
    dialect: PhantomData<fn() -> D>,
}

impl<D: Dialect> Rest<D> {
    pub(super) fn new(api: Api) -> Self {
        Self { api: Arc::new(api), dialect: PhantomData }
    }

    fn send(&self, method: Method, path: String, body: Option<Value>) -> Call<Bytes> {
        let api = Arc::clone(&self.api);
        async move { api.send(D::NAME, D::judge, method, &path, body).await }.boxed()
    }
}

impl<D: Dialect> Rest<D> {
    /// What a part of a query selects of a collection, page by page.
    fn pages<Item, Read>(&self, collection: &'static str, selected: String) -> Call<Vec<Read>>
    where
        Item: DeserializeOwned + Into<Read>,
        Read: Send + 'static,
    {
        let rest = Self { api: Arc::clone(&self.api), dialect: PhantomData };
        async move {
            let mut all = Vec::new();
            for page in 1..=D::MAX_PAGES {
                let size = D::PAGE;
                let path = format!("/{collection}?{selected}per_page={size}&page={page}");
                let body = rest.send(Method::GET, path, None).await?;
                let (found, goes_on): (Vec<Item>, _) = read_page::<D, _>(&body, collection)?;
                // A page may be shorter than was asked for.
                let is_last = found.is_empty() || (found.len() < size && !goes_on);
                all.extend(found.into_iter().map(Into::into));
                if is_last {
                    return Ok(all);
                }
            }
            let message = format!("more than {} pages of {collection}", D::MAX_PAGES);
            Err(Failure::new(D::NAME, Kind::Refused, message))
        }
        .boxed()
    }

    /// Deletes something, if it is there.
    fn remove(&self, path: String) -> Call<()> {
        let sent = self.send(Method::DELETE, path, None);
        async move {
            match sent.await {
                Err(failure) if failure.kind != Kind::Gone => Err(failure),
                _ => Ok(()),
            }
        }
        .boxed()
    }
}

impl<D: Dialect> Provider for Rest<D> {
    fn list_by_tag(&self, tag: Tag) -> Call<Vec<Host>> {
        self.pages::<D::Item, _>(D::HOSTS, format!("{}&", D::tagged(&tag)))
    }

    fn list(&self) -> Call<Vec<Host>> {
        let all = self.pages::<D::Item, Host>(D::HOSTS, D::OURS.to_owned());
        async move { Ok(all.await?.into_iter().filter(|host| host.tunnel.is_some()).collect()) }
            .boxed()
    }

    fn create(&self, request: HostRequest) -> Call<Host> {
        let sent = self.send(Method::POST, format!("/{}", D::HOSTS), Some(D::body(&request)));
        async move { read::<D, D::Item>(&sent.await?, D::HOST).map(Into::into) }.boxed()
    }

    fn get(&self, id: String) -> Call<Option<Host>> {
        let sent = self.send(Method::GET, format!("/{}/{id}", D::HOSTS), None);
        async move {
            match sent.await {
                Ok(body) => Ok(Some(read::<D, D::Item>(&body, D::HOST)?.into())),
                Err(failure) if failure.kind == Kind::Gone => Ok(None),
                Err(failure) => Err(failure),
            }
        }
        .boxed()
    }

    fn delete(&self, id: String) -> Call<()> {
        self.remove(format!("/{}/{id}", D::HOSTS))
    }

    fn tells_address(&self) -> bool {
        D::TELLS_ADDRESS
    }

    fn addresses(&self) -> Call<Vec<Address>> {
        let all = self.pages::<D::Place, Address>(D::ADDRESSES, D::OURS.to_owned());
        async move { Ok(all.await?.into_iter().filter(Address::is_of_ipv4).collect()) }.boxed()
    }

    fn reserve(&self, request: AddressRequest) -> Call<Address> {
        let body = D::address_body(&request);
        let sent = self.send(Method::POST, format!("/{}", D::ADDRESSES), Some(body));
        async move { read::<D, D::Place>(&sent.await?, D::ADDRESS).map(Into::into) }.boxed()
    }

    fn assign(&self, id: String, host: String) -> Call<()> {
        let (path, body) = D::assignment(host.parse().unwrap_or_default());
        let sent = self.send(Method::POST, format!("/{}/{id}/{path}", D::ADDRESSES), Some(body));
        async move { sent.await.map(drop) }.boxed()
    }

    fn release(&self, id: String) -> Call<()> {
        self.remove(format!("/{}/{id}", D::ADDRESSES))
    }
}

/// What an answer holds under a name.
fn read<D: Dialect, T: DeserializeOwned>(body: &[u8], name: &str) -> Result<T, Failure> {
    read_page::<D, T>(body, name).map(|(found, _)| found)
}

/// The same, and whether the answer says that another page follows.
fn read_page<D: Dialect, T: DeserializeOwned>(
    body: &[u8],
    name: &str,
) -> Result<(T, bool), Failure> {
    let found = serde_json::from_slice(body).and_then(|mut body: Value| {
        let goes_on = body.pointer(D::NEXT).is_some_and(|next| !next.is_null());
        let found = body.get_mut(name).map(Value::take).unwrap_or_default();
        serde_json::from_value(found).map(|found| (found, goes_on))
    });
    found.map_err(|error| {
        Failure::new(D::NAME, Kind::Unanswered, format!("the answer cannot be read: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use serde_json::json;

    use super::*;
    use crate::api::Placement;
    use crate::names::tunnel_tag;
    use crate::provider::http::Http;
    use crate::provider::local::Local;
    use crate::provider::{Account, account};

    /// The account of a provider that answers so.
    fn answering(
        provider: &str,
        answer: impl Fn(&Request<Bytes>) -> (u16, Value) + Send + Sync + 'static,
    ) -> Account {
        let http = Http::through(move |request| {
            let (status, body) = answer(&request);
            let mut response = Response::new(Bytes::from(body.to_string()));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            async move { Ok(response) }.boxed()
        });
        let placement = Placement {
            provider: provider.to_owned(),
            endpoint: Some("https://cloud.test".to_owned()),
            region: String::new(),
            size: String::new(),
            account: None,
            token_key: None,
        };
        account(&placement, "secret", &http, &Local::default()).unwrap()
    }

    /// As of a proxy, or of another version of the API: a page may be shorter than was asked for.
    #[tokio::test]
    async fn a_list_goes_on_as_long_as_a_page_says_so() {
        for (provider, collection) in [("digitalocean", "droplets"), ("hetzner", "servers")] {
            let account = answering(provider, move |request| {
                let query = request.uri().query().unwrap_or_default();
                let page: u64 = query.rsplit_once("&page=").unwrap().1.parse().unwrap();
                let next = (page < 3).then_some(page + 1);
                let host = json!({
                    "id": page, "status": "active", "tags": ["leasehold-tunnel:t"],
                    "labels": {"leasehold-tunnel": "t"},
                });
                let body = json!({
                    collection: [host],
                    "links": {"pages": {"next": next.map(|page| format!("?page={page}"))}},
                    "meta": {"pagination": {"next_page": next}},
                });
                (200, body)
            });
            let ids = |hosts: Vec<Host>| hosts.into_iter().map(|host| host.id).collect::<Vec<_>>();
            let provider = account.provider;
            let tagged = provider.list_by_tag(tunnel_tag("t")).await.unwrap();
            assert_eq!(ids(tagged), ["1", "2", "3"]);
            assert_eq!(ids(provider.list().await.unwrap()), ["1", "2", "3"]);
        }
    }

    /// As where a proxy takes no notice of what is selected, or a person gave it our labels.
    #[tokio::test]
    async fn an_ipv6_network_of_the_account_hides_no_other_address() {
        let place = |id: u64, ip: &str| json!({"id": id, "ip": ip, "labels": {"leasehold-tunnel": "t"}, "home_location": {"name": "fsn1"}});
        let all = json!({"floating_ips": [place(1, "2001:db8::/64"), place(2, "203.0.113.7")]});
        let account = answering("hetzner", move |_| (200, all.clone()));
        let found = account.provider.addresses().await.unwrap();
        assert_eq!(found.into_iter().map(|found| found.id).collect::<Vec<_>>(), ["2"]);
    }

    /// Nobody need do anything about what is being changed at the moment.
    #[tokio::test]
    async fn a_host_that_is_being_changed_is_busy() {
        let says = |code: &str| json!({"id": code, "message": "no", "error": {"code": code}});
        for (provider, status, code, expect) in [
            ("digitalocean", 409, "conflict", Kind::Busy),
            ("hetzner", 409, "conflict", Kind::Busy),
            ("hetzner", 409, "", Kind::Busy),
            ("hetzner", 409, "uniqueness_error", Kind::Exists),
            ("hetzner", 423, "locked", Kind::Busy),
            ("hetzner", 403, "protected", Kind::Refused),
            ("digitalocean", 422, "unprocessable_entity", Kind::Refused),
        ] {
            let body = says(code);
            let provider = answering(provider, move |_| (status, body.clone())).provider;
            let failure = provider.delete("1".to_owned()).await.unwrap_err();
            assert_eq!(failure.kind, expect, "{status} {code}");
        }
    }
}
