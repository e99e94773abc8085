//! The calls of a client.

use napi::Env;
use napi_derive::napi;
use onelock::ErrorKind;

use super::Bridge;
use crate::client::{Name, NativeClient, bytes};
use crate::credentials::Provider;
use crate::data::Failure;
use crate::options::ClientOptions;
use crate::pump::Outcome;

#[napi]
impl Bridge {
    /// A client; `null` when the arguments are wrong: then the error is payload 0.
    #[napi]
    pub fn open(&self, url: String, options: ClientOptions) -> Option<NativeClient> {
        if options.cert_file.is_some() != options.key_file.is_some() {
            let detail = "certFile and keyFile belong together";
            return self.refused(Failure::new(ErrorKind::InvalidArgument, "make a client", detail));
        }
        let provider = options.credentials.map(|number| Provider::new(&self.pump, number));
        let builder = options.builder();
        let builder = match provider {
            Some(provider) => builder.credentials(provider),
            None => builder,
        };
        match self.clients.build(builder, &url) {
            Ok(client) => Some(NativeClient { client }),
            Err(error) => self.refused(error.into()),
        }
    }

    #[napi]
    pub fn check(&self, env: Env, call: u32, client: &NativeClient) -> napi::Result<()> {
        let client = client.client.clone();
        self.begin(env, call, async move { Ok(Outcome::Checked(client.check().await?)) })
    }

    #[napi]
    pub fn diagnose(&self, env: Env, call: u32, client: &NativeClient, name: Name<'_>) -> napi::Result<()> {
        let (client, name) = (client.client.clone(), bytes(&name).to_vec());
        self.begin(env, call, async move { Ok(Outcome::Diagnosed(client.diagnose(name).await?)) })
    }

    #[napi]
    pub fn close_client(&self, env: Env, call: u32, client: &NativeClient) -> napi::Result<()> {
        let client = client.client.clone();
        self.begin(env, call, async move {
            client.close().await;
            Ok(Outcome::Done)
        })
    }

    #[napi]
    pub fn inspect(&self, env: Env, call: u32, client: &NativeClient, name: Name<'_>) -> napi::Result<()> {
        let (client, name) = (client.client.clone(), bytes(&name).to_vec());
        self.begin(env, call, async move {
            let seen = client.inspect(name).await?;
            Ok(seen.map_or(Outcome::Nothing, |seen| Outcome::Inspected(Box::new(seen))))
        })
    }

    #[napi]
    pub fn list(
        &self,
        env: Env,
        call: u32,
        client: &NativeClient,
        pattern: Name<'_>,
        limit: u32,
        cursor: Option<String>,
    ) -> napi::Result<()> {
        let (client, pattern) = (client.client.clone(), bytes(&pattern).to_vec());
        self.begin(env, call, async move { Ok(Outcome::Listed(client.list(pattern, limit, cursor.as_deref()).await?)) })
    }

    #[napi]
    pub fn force_release(
        &self,
        env: Env,
        call: u32,
        client: &NativeClient,
        name: Name<'_>,
        foreign: bool,
    ) -> napi::Result<()> {
        let (client, name) = (client.client.clone(), bytes(&name).to_vec());
        self.begin(env, call, async move {
            let found =
                if foreign { client.force_release_foreign(name).await? } else { client.force_release(name).await? };
            Ok(Outcome::Flag(found))
        })
    }
}
