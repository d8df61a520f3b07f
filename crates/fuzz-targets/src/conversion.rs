//! A ConversionReview: the response to it, and the way back of what was converted.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use harvester_lb_core::conversion::{
    ConversionError, Facts, Outcome, ReviewError, Version, review,
};
use harvester_lb_ipam::{OwnerId, PoolName};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The least that a response may be long; a failure quotes a part of the request.
const LEAST: usize = 4096;

/// Every address is that of a virtual machine, and every address of the load balancer `calm/holds` is of a pool.
struct Known;

impl Facts for Known {
    fn virtual_machine(&self, namespace: &str, address: Ipv4Addr) -> Option<Arc<str>> {
        let last = address.octets()[3];
        (!namespace.is_empty()).then(|| format!("vm{}", last % 4).into())
    }

    fn pool(&self, owner: &OwnerId, _: IpAddr) -> Option<PoolName> {
        (owner.as_str() == "calm/holds").then(|| "calm".into())
    }
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow)]
    response: Converted<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Converted<'a> {
    uid: String,
    #[serde(borrow)]
    converted_objects: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a> {
    api_version: String,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

/// Runs an input; returns whether it is a review.
pub fn run(data: &[u8]) -> bool {
    let response = match review(data, Some(&Known)) {
        Ok(response) => response,
        Err(ReviewError::NotAReview(_)) => return false,
        Err(ReviewError::NotReady) => panic!("there are facts"),
    };
    assert!(
        response.body.len() < data.len() * 6 + LEAST,
        "out of proportion"
    );
    let body: Response<'_> = serde_json::from_slice(&response.body).unwrap();
    let converted = body.response.converted_objects;
    let Outcome::Converted { desired, objects } = response.outcome else {
        assert!(converted.is_empty());
        return true;
    };
    assert_eq!(converted.len(), objects);
    let back = match desired {
        Version::V1Alpha1 => Version::V1Beta1,
        Version::V1Beta1 => Version::V1Alpha1,
    };
    for object in converted {
        // An object whose own fields are repeated is no object to this decoder.
        let Ok(before) = serde_json::from_str::<Object<'_>>(object.get()) else {
            continue;
        };
        assert_eq!(before.api_version, desired.api_version());
        let again = format!(
            r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{{"uid":{uid},"desiredAPIVersion":"{back}","objects":[{object}]}}}}"#,
            uid = serde_json::Value::from(&*body.response.uid),
        );
        let again = review(again.as_bytes(), Some(&Known)).unwrap();
        if let Outcome::Failed(error) = &again.outcome {
            // It has as many fields as an object may have, and got one more.
            assert!(
                matches!(error, ConversionError::Malformed { .. }),
                "{error}"
            );
            continue;
        }
        let again: Response<'_> = serde_json::from_slice(&again.body).unwrap();
        let after: Object<'_> =
            serde_json::from_str(again.response.converted_objects[0].get()).unwrap();
        assert_eq!(
            before.metadata.map(RawValue::get),
            after.metadata.map(RawValue::get)
        );
    }
    true
}
