//! A stream of hostile objects, derived from a seed.

use fastrand::Rng;
use harvester_lb_fixtures::stored;
use serde_json::{Value, json};

use crate::kind::{Kind, Source, Targets};
use crate::{attacks, mutate, text, valid};

/// A mutated object.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace in the request, empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name in the request.
    pub name: String,
    /// The object in JSON.
    pub text: String,
    /// The mutations, to diagnose a failure.
    pub what: Vec<String>,
    /// Whether no API server would ever send this, because its own decoder rejects it.
    pub rejected_by_decoder: bool,
}

/// Generates hostile objects of a kind.
#[derive(Debug)]
pub struct Generator {
    rng: Rng,
    kind: Kind,
    source: Source,
    targets: Targets,
    number: u64,
}

impl Generator {
    /// A generator; the same arguments give the same objects.
    pub fn new(seed: u64, kind: Kind, source: Source, targets: Targets) -> Self {
        // Different kinds must not get the same sequence of random numbers.
        let number = Kind::ALL
            .iter()
            .position(|k| *k == kind)
            .unwrap_or_default();
        let rng = Rng::with_seed(seed ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self {
            rng,
            kind,
            source,
            targets,
            number: 0,
        }
    }

    /// A valid object of that namespace and name. An IPAllocation with the name of a lease is the record of one.
    pub fn valid(&mut self, namespace: &str, name: &str) -> Value {
        let mut object = valid::object(&mut self.rng, self.kind, &self.targets, name);
        let (api_version, kind) = self.kind.names();
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object["metadata"]["name"] = json!(name);
        if !self.kind.is_cluster_scoped() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        if self.source == Source::ToServer && self.kind == Kind::Service {
            // The API server allocates these, each one unique.
            for field in ["clusterIP", "clusterIPs"] {
                object["spec"][field].take();
            }
            object["spec"]["ports"][0]["nodePort"].take();
        }
        if self.source == Source::FromWatch {
            self.number += 1;
            let uid = valid::uid(&mut self.rng);
            object = stored(object, &uid, 1_000 + self.number);
        }
        object
    }

    /// A mutated object of that namespace and name.
    pub fn mutant(&mut self, namespace: &str, name: &str) -> Mutant {
        let mut object = self.valid(namespace, name);
        let mut what = Vec::new();
        let rng = &mut self.rng;
        let mut rounds = 1;
        while rounds < 6 && rng.bool() {
            rounds += 1;
        }
        for _ in 0..rounds {
            let done = if rng.u8(..5) < 2 {
                attacks::one(rng, self.kind, self.source, &self.targets, &mut object)
            } else {
                let large = rng.usize(..self.source.one_in_large()) == 0;
                mutate::one(rng, self.source, large, &mut object)
            };
            what.push(done);
        }
        if self.source == Source::ToServer {
            object["metadata"]["name"] = json!(name);
            if !self.kind.is_cluster_scoped() {
                object["metadata"]["namespace"] = json!(namespace);
            }
        }
        let (text, rejected_by_decoder) = text::render(&object);
        Mutant {
            kind: self.kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            text,
            what,
            rejected_by_decoder,
        }
    }
}
