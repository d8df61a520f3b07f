use serde_json::Value;

use super::*;

const INTERFACE: &str = keys::ANNOTATION_KUBE_VIP_INTERFACE;
const HOSTNAME: &str = "kube-vip.io/loadbalancerHostname";
const FLUSH: &str = "kube-vip.io/flush-conntrack";

fn meta(uid: &str, annotations: &[(&str, &str)]) -> ObjectMeta {
    let annotations = annotations
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ObjectMeta {
        uid: Some(uid.to_owned()),
        annotations: Some(annotations.collect()),
        ..ObjectMeta::default()
    }
}

fn allowed() -> Interfaces {
    "storage, vlan20".parse().unwrap()
}

fn wanted(uid: &str, annotations: &[(&str, &str)]) -> Wanted {
    Wanted::of(&meta(uid, annotations), &allowed())
}

fn own(uid: &str, annotations: &[(&str, &str)]) -> Source {
    Source::Own(wanted(uid, annotations))
}

fn heir(uid: &str, annotations: &[(&str, &str)]) -> Source {
    Source::Heir(wanted(uid, annotations))
}

/// The Service's annotations without the note.
fn shown_of(service: &ObjectMeta) -> Vec<(String, String)> {
    let all = service.annotations.clone().unwrap_or_default();
    all.into_iter()
        .filter(|(key, _)| key != keys::ANNOTATION_COPIED)
        .collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = all
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    all.sort();
    all
}

fn note(service: &ObjectMeta) -> Option<Value> {
    let text = annotation(service, keys::ANNOTATION_COPIED)?;
    Some(serde_json::from_str(text).unwrap())
}

#[test]
fn kva_1_a_service_that_is_made_anew_without_its_primary_has_those_of_the_holder() {
    let mut holder = meta("u-b", &[(INTERFACE, "vlan20")]);
    holder.name = Some("b".to_owned());
    let shown = |is_new| {
        let mut service = ObjectMeta::default();
        let source = Source::of_group("a", &holder, &allowed(), is_new);
        copy(&mut service, &source);
        // The next look finds them there.
        copy(
            &mut service,
            &Source::of_group("a", &holder, &allowed(), false),
        );
        shown_of(&service)
    };
    assert_eq!(shown(true), pairs(&[(INTERFACE, "vlan20")]));
    // What is there already stays as the primary has left it.
    assert_eq!(shown(false), pairs(&[]));
    holder.name = Some("a".to_owned());
    let mut service = ObjectMeta::default();
    let source = Source::of_group("a", &holder, &allowed(), false);
    copy(&mut service, &source);
    assert_eq!(shown_of(&service), pairs(&[(INTERFACE, "vlan20")]));
}

#[test]
fn kva_1_the_annotations_follow_the_load_balancer() {
    type All<'a> = &'a [(&'a str, &'a str)];
    // What the Service has before; what the load balancer has in turn; what the Service has after each.
    let cases: &[(All<'_>, &[(All<'_>, All<'_>)])] = &[
        (&[], &[(&[], &[])]),
        (
            &[],
            &[
                (&[(HOSTNAME, "a")], &[(HOSTNAME, "a")]),
                (&[(HOSTNAME, "b")], &[(HOSTNAME, "b")]),
                (&[(FLUSH, "true")], &[(FLUSH, "true")]),
                (&[], &[]),
            ],
        ),
        // Those that the load balancer never had are left alone.
        (
            &[
                (HOSTNAME, "users"),
                ("kube-vip.io/vipHost", "node1"),
                ("x", "y"),
            ],
            &[
                (
                    &[],
                    &[
                        (HOSTNAME, "users"),
                        ("kube-vip.io/vipHost", "node1"),
                        ("x", "y"),
                    ],
                ),
                (
                    &[(FLUSH, "true")],
                    &[
                        (HOSTNAME, "users"),
                        (FLUSH, "true"),
                        ("kube-vip.io/vipHost", "node1"),
                        ("x", "y"),
                    ],
                ),
                (
                    &[],
                    &[
                        (HOSTNAME, "users"),
                        ("kube-vip.io/vipHost", "node1"),
                        ("x", "y"),
                    ],
                ),
            ],
        ),
        // One that it has replaces that of somebody else.
        (
            &[(HOSTNAME, "users")],
            &[(&[(HOSTNAME, "a")], &[(HOSTNAME, "a")]), (&[], &[])],
        ),
        // Others are not copied, and an interface only if it is allowed.
        (
            &[],
            &[
                (&[("kube-vip.io/egress", "true"), ("a", "b")], &[]),
                (&[(INTERFACE, "eth7")], &[]),
                (&[(INTERFACE, "vlan20")], &[(INTERFACE, "vlan20")]),
                (&[(INTERFACE, "eth7")], &[]),
            ],
        ),
    ];
    for (before, steps) in cases {
        let mut service = meta("s", before);
        for (lb, expected) in *steps {
            copy(&mut service, &own("1", lb));
            assert_eq!(shown_of(&service), pairs(expected), "{before:?}, {lb:?}");
            let again = service.clone();
            copy(&mut service, &own("1", lb));
            assert_eq!(service, again, "{before:?}, {lb:?}");
        }
        assert_eq!(note(&service), None, "{before:?}");
    }
}

#[test]
fn kva_1_all_five_are_copied() {
    let all = COPIED.map(|key| (key, "vlan20"));
    let mut service = ObjectMeta::default();
    copy(&mut service, &own("1", &all));
    assert_eq!(shown_of(&service), pairs(&all));
    let keys = note(&service).unwrap()["keys"].as_array().unwrap().len();
    assert_eq!(keys, COPIED.len());
}

#[test]
fn kva_1_a_note_removes_nothing_but_copies() {
    for note in [
        "x",
        "[]",
        "{}",
        r#"{"from":"1","keys":["x","kube-vip.io/vipHost","kube-vip.io/flush-conntrack"]}"#,
        r#"{"from":"1","keys":["x"],"heir":{"uid":"2","values":{"x":"z"}}}"#,
    ] {
        let kept = [("x", "y"), ("kube-vip.io/vipHost", "node1")];
        let mut service = meta("s", &kept);
        let annotations = service.annotations.as_mut().unwrap();
        annotations.insert(keys::ANNOTATION_COPIED.to_owned(), note.to_owned());
        for source in [
            own("1", &[(HOSTNAME, "a")]),
            heir("2", &[]),
            heir("2", &[(HOSTNAME, "b")]),
            own("1", &[]),
        ] {
            copy(&mut service, &source);
            let shown = shown_of(&service);
            assert!(pairs(&kept).iter().all(|it| shown.contains(it)), "{note}");
        }
    }
}

#[test]
fn kva_1_after_the_primary_they_stay_until_the_holders_own_are_edited() {
    let primary = [(HOSTNAME, "primary")];
    let mut service = meta("s", &[("x", "y")]);
    copy(&mut service, &own("1", &primary));
    let stay = pairs(&[("x", "y"), (HOSTNAME, "primary")]);

    // The holder has some of its own, which do not count yet.
    let first = heir("2", &[(FLUSH, "true")]);
    copy(&mut service, &first);
    assert_eq!(shown_of(&service), stay);
    let noted = service.clone();
    copy(&mut service, &first);
    assert_eq!(service, noted);

    // It goes too. The next one has none.
    let second = heir("3", &[]);
    copy(&mut service, &second);
    assert_eq!(shown_of(&service), stay);

    // Edited.
    let edited = heir("3", &[(FLUSH, "false")]);
    for _ in 0..2 {
        copy(&mut service, &edited);
        assert_eq!(shown_of(&service), pairs(&[("x", "y"), (FLUSH, "false")]));
    }
    // From then on its own are what counts.
    for _ in 0..2 {
        copy(&mut service, &heir("3", &[]));
        assert_eq!(shown_of(&service), pairs(&[("x", "y")]));
    }
    copy(&mut service, &heir("3", &primary));
    assert_eq!(shown_of(&service), stay);
    // The one after it.
    copy(&mut service, &heir("4", &[]));
    assert_eq!(shown_of(&service), stay);
}

#[test]
fn kva_1_the_holder_of_a_primary_without_any() {
    let mut service = ObjectMeta::default();
    copy(&mut service, &own("1", &[]));
    assert_eq!(service, ObjectMeta::default());
    copy(&mut service, &heir("2", &[(FLUSH, "true")]));
    assert_eq!(shown_of(&service), []);
    copy(&mut service, &heir("2", &[(FLUSH, "false")]));
    assert_eq!(shown_of(&service), pairs(&[(FLUSH, "false")]));
}

#[test]
fn kva_2_the_condition_names_those_that_are_allowed() {
    let message = |interfaces: &str, value: &str| {
        let allowed = interfaces.parse().unwrap();
        let condition = Wanted::of(&meta("1", &[(INTERFACE, value)]), &allowed).condition();
        assert_eq!(condition.type_, "InterfaceNotAllowed");
        condition.message
    };
    assert_eq!(message("storage,vlan20", "vlan20"), None);
    assert_eq!(message("", ""), None);
    let text = message("vlan20 ,, storage", "eth0").unwrap();
    assert!(
        text.contains(INTERFACE) && text.contains("\"eth0\""),
        "{text}"
    );
    assert!(text.contains("allowed are storage, vlan20"), "{text}");
    assert!(message("", "eth0").unwrap().contains("none is allowed"));
    let long = message("", &"x".repeat(100_000)).unwrap();
    assert!(long.len() < 500);
    assert_eq!(
        Wanted::of(&meta("1", &[]), &allowed()).condition().message,
        None
    );
}

#[test]
fn kva_2_names_of_interfaces() {
    for good in ["eth0", "mgmt-br", "bond0.20", "a,,b ,", "fifteen-letters"] {
        let parsed: Result<Interfaces, String> = good.parse();
        assert!(parsed.is_ok(), "{good}");
    }
    for bad in ["a/b", "a b", "sixteen-letters-", "..", "eth0:1", "ok,."] {
        let parsed: Result<Interfaces, String> = bad.parse();
        assert!(
            parsed.unwrap_err().contains("no name of an interface"),
            "{bad}"
        );
    }
}

#[test]
fn kva_1_warnings() {
    let warned = |annotations: &[(&str, &str)]| -> Vec<String> {
        warnings(&meta("1", annotations), &allowed()).collect()
    };
    assert!(warned(&COPIED.map(|key| (key, "vlan20"))).is_empty());
    assert!(warned(&[("a", "b"), ("kube-vip.io", "b")]).is_empty());
    let texts = warned(&[("kube-vip.io/egress", "true"), (INTERFACE, "eth0")]);
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].contains("eth0"), "{texts:?}");
    assert!(texts[1].contains("kube-vip.io/egress"), "{texts:?}");
}

/// The annotations of one that takes over may be as long as those of an object may be together, and those of the one before are still
/// copied.
#[test]
fn kva_1_the_note_of_one_that_takes_over_is_short() {
    let long = "x".repeat(100_000);
    let mut service = ObjectMeta::default();
    copy(&mut service, &own("1", &[(HOSTNAME, "a")]));
    let takes_over = heir("2", &[(HOSTNAME, &long), (FLUSH, &long)]);
    copy(&mut service, &takes_over);
    let text = annotation(&service, keys::ANNOTATION_COPIED).unwrap();
    assert!(text.len() < 1_000, "{}", text.len());
    assert_eq!(shown_of(&service), pairs(&[(HOSTNAME, "a")]));
    let before = service.clone();
    copy(&mut service, &takes_over);
    assert_eq!(service, before);
    // Its own count once they are edited.
    copy(
        &mut service,
        &heir("2", &[(HOSTNAME, &long[1..]), (FLUSH, "true")]),
    );
    assert_eq!(
        shown_of(&service),
        pairs(&[(HOSTNAME, &long[1..]), (FLUSH, "true")])
    );
}
