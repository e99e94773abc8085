//! Addresses: one server, and several servers in one address. The end of the scheme tells which.

pub(crate) mod endpoint;
pub(crate) mod multi;

use std::sync::Arc;

use self::endpoint::Endpoint;
use self::multi::{ClusterSeeds, SentinelConfig};
use super::diagnosis::{self, DiagnosisPlan};
use super::{CAPABILITIES, ClusterStore, RedisOptions, RedisStore};
use crate::config::Options;
use crate::error::Error;
use crate::store::address::StoreAddress;
use crate::store::{Boxed, Capabilities, Finding, SharedStore};

/// Reads the address of one server, of a group behind Sentinels, or of a cluster.
pub(crate) fn read(url: &str, options: &Options) -> Result<Box<dyn StoreAddress>, Error> {
    let options = RedisOptions::of(options);
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    Ok(match scheme.split_once('+') {
        Some((_, "sentinel")) => Box::new(SentinelConfig::parse(url, &options)?),
        Some((_, "cluster")) => Box::new(ClusterSeeds::parse(url, &options)?),
        _ => Box::new(Endpoint::parse(url, &options)?),
    })
}

impl StoreAddress for Endpoint {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn open(&self, options: &Options) -> SharedStore {
        Arc::new(RedisStore::at(self.clone(), RedisOptions::of(options)))
    }

    fn diagnose(&self, options: &Options, name: Vec<u8>) -> Boxed<Vec<Finding>> {
        let (endpoint, plan) = (self.clone(), DiagnosisPlan::new(options, name));
        Box::pin(async move { diagnosis::server(endpoint, &plan).await.findings })
    }
}

impl StoreAddress for SentinelConfig {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn open(&self, options: &Options) -> SharedStore {
        Arc::new(RedisStore::with_sentinels(self.clone(), RedisOptions::of(options)))
    }

    fn diagnose(&self, options: &Options, name: Vec<u8>) -> Boxed<Vec<Finding>> {
        let (group, plan) = (self.clone(), DiagnosisPlan::new(options, name));
        Box::pin(async move { diagnosis::sentinel(group, &plan).await })
    }
}

impl StoreAddress for ClusterSeeds {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn open(&self, options: &Options) -> SharedStore {
        Arc::new(ClusterStore::at(self.clone(), RedisOptions::of(options)))
    }

    fn diagnose(&self, options: &Options, name: Vec<u8>) -> Boxed<Vec<Finding>> {
        let (seeds, plan) = (self.clone(), DiagnosisPlan::new(options, name));
        Box::pin(async move { diagnosis::cluster(seeds, &plan).await })
    }
}
