use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::*;

fn adding(name: &str, ports: &[u16]) -> Change {
    let port = |port: &u16| DesiredPort {
        name: format!("{port}-tcp"),
        protocol: "TCP",
        port: *port,
        target: IntOrString::Int(8080),
    };
    Change {
        name: name.to_owned(),
        uid: format!("u-{name}"),
        what: What::Ports(ports.iter().map(port).collect()),
    }
}

fn fields(name: &str, text: &str) -> Change {
    Change {
        what: What::Fields(text.to_owned()),
        ..adding(name, &[])
    }
}

fn served(ports: &[u16]) -> Vec<Served> {
    let What::Ports(all) = adding("any", ports).what else {
        unreachable!()
    };
    all.iter().map(DesiredPort::served).collect()
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// 1 s, 2 s and so on, up to a minute.
pub(in crate::sharing) fn pause(times: u32) -> Duration {
    secs(1 << (times - 1).min(10)).min(secs(60))
}

/// The names of those whose ports are to be added next.
fn next(refusals: &Refusals, pending: &[Change], now: u64) -> String {
    let next = refusals.next(pending, secs(now));
    let names: Vec<&str> = next.iter().map(|it| &*it.name).collect();
    names.join(" ")
}

#[test]
fn shr_3_of_several_the_one_whose_port_is_refused_is_found_and_keeps_nobody_waiting() {
    let mut refusals = Refusals::default();
    let all = [adding("a", &[7777]), adding("b", &[81]), adding("c", &[82])];
    let why = |refusals: &Refusals, name: &str, lacks: &[u16]| {
        let why = refusals.why(name, &format!("u-{name}"), &served(lacks));
        why.map(str::to_owned)
    };
    assert_eq!(next(&refusals, &all, 10), "a b c");
    refusals.refused(&all, "one of them", secs(10), pause);
    // It is not known whose.
    assert_eq!(
        (why(&refusals, "a", &[7777]), refusals.retry_in(secs(10))),
        (None, None)
    );
    // Who comes now has not been refused.
    let with_d = [all.as_slice(), &[adding("d", &[83])]].concat();
    assert_eq!(next(&refusals, &with_d, 10), "d");
    refusals.written(&with_d[3..]);
    assert_eq!(next(&refusals, &all, 10), "a");
    refusals.refused(&all[..1], "not 7777", secs(10), pause);
    assert_eq!(next(&refusals, &all, 10), "b");
    refusals.written(&all[1..2]);
    assert_eq!(next(&refusals, &all[..1], 10), "");
    // Also when it is due.
    let pending = [all[0].clone(), all[2].clone()];
    assert_eq!(next(&refusals, &pending, 11), "c");
    refusals.written(&all[2..]);
    assert_eq!(next(&refusals, &all[..1], 11), "a");
    assert_eq!(why(&refusals, "a", &[7777]).as_deref(), Some("not 7777"));
    refusals.written(&all[..1]);
    assert!(refusals.is_empty());
}

#[test]
fn shr_3_refused_ports_are_tried_again_by_themselves_with_a_back_off() {
    let mut refusals = Refusals::default();
    let one = [adding("b", &[7777])];
    // Together with what else was to change.
    refusals.refused(&one, "no", secs(0), pause);
    assert_eq!(next(&refusals, &one, 0), "b");
    let mut now = 0;
    for pause_of in [1, 2, 4, 8, 16, 32, 60, 60] {
        refusals.refused(&one, "no", secs(now), pause);
        assert_eq!(refusals.retry_in(secs(now)), Some(secs(pause_of)));
        assert_eq!(next(&refusals, &one, now), "");
        now += pause_of;
        assert_eq!(refusals.retry_in(secs(now)), None);
        assert_eq!(next(&refusals, &one, now), "b");
        // It is told so all the time.
        let why = refusals.why("b", "u-b", &served(&[7777, 81]));
        assert_eq!(why, Some("no"));
    }
    // Of two that are due the one that has waited longer.
    let two = [adding("a", &[6666]), adding("b", &[7777])];
    refusals.refused(&two[1..], "no", secs(now), pause);
    let long = now + 100;
    refusals.refused(&two[..1], "no", secs(long), pause);
    refusals.refused(&two[..1], "no", secs(long), pause);
    assert_eq!(next(&refusals, &two, long + 60), "b");
}

#[test]
fn shr_3_a_refusal_is_of_these_ports_of_this_load_balancer() {
    let mut refusals = Refusals::default();
    let b = adding("b", &[81, 7777]);
    for _ in 0..2 {
        refusals.refused(std::slice::from_ref(&b), "no", secs(0), pause);
    }
    let other_uid = Change {
        uid: "later".to_owned(),
        ..b.clone()
    };
    let mut other_target = b.clone();
    if let What::Ports(ports) = &mut other_target.what {
        ports[0].target = IntOrString::Int(9090);
    }
    for other in [
        adding("b", &[81, 82]),
        other_uid,
        other_target,
        fields("b", "{}"),
    ] {
        assert_eq!(refusals.why_not(&other), None);
        assert_eq!(next(&refusals, &[other], 0), "b");
    }
    assert_eq!(refusals.why_not(&b), Some("no"));
    let why = |uid: &str, lacks: &[u16]| refusals.why("b", uid, &served(lacks));
    assert_eq!(why("u-b", &[81, 82, 7777]), Some("no"));
    // It wants another one by now, or has one of them, or is a later one of the name.
    assert_eq!(why("u-b", &[81, 82]), None);
    assert_eq!(why("u-b", &[]), None);
    assert_eq!(why("later", &[81, 7777]), None);
    let mut later = refusals.clone();
    later.retain(|name, uid| (name, uid) == ("b", "later"));
    assert!(later.is_empty());
    refusals.retain(|name, uid| (name, uid) == ("b", "u-b"));
    assert!(!refusals.is_empty());
    // It does not want that any more.
    refusals.settled(&[adding("b", &[81, 82])]);
    assert!(refusals.is_empty());
}

#[test]
fn shr_3_the_rest_is_refused_by_itself() {
    let mut refusals = Refusals::default();
    let long = "\u{e4}".repeat(1_000);
    let reason = "\u{e4}".repeat(256);
    assert!(refusals.may_write_rest(secs(0)));
    refusals.refused(&[], &long, secs(0), pause);
    // That concerns all who wait for something, and nobody else.
    assert_eq!(refusals.why_not(&adding("a", &[81])), Some(&*reason));
    assert_eq!(refusals.why("a", "u-a", &served(&[81])), Some(&*reason));
    assert_eq!(refusals.why("a", "u-a", &[]), None);
    assert_eq!(refusals.retry_in(secs(0)), Some(secs(1)));
    assert!(!refusals.may_write_rest(secs(0)) && refusals.may_write_rest(secs(1)));
    refusals.refused(&[], &long, secs(1), pause);
    assert_eq!(refusals.retry_in(secs(1)), Some(secs(2)));
    let mut done = refusals.clone();
    done.settled(&[]);
    refusals.written(&[]);
    assert!(refusals.is_empty() && done.is_empty());
}

#[test]
fn shr_3_address_and_annotations_are_refused_by_themselves() {
    let mut refusals = Refusals::default();
    let (ports, moves) = (adding("web", &[22]), fields("web", "to 10.0.1.3"));
    for _ in 0..2 {
        refusals.refused(std::slice::from_ref(&ports), "not 22", secs(0), pause);
        refusals.refused(std::slice::from_ref(&moves), "not there", secs(0), pause);
    }
    assert_eq!(refusals.why_not(&ports), Some("not 22"));
    assert_eq!(refusals.why_not(&moves), Some("not there"));
    assert_eq!(refusals.why_fields("web", "u-web"), Some("not there"));
    assert_eq!(refusals.why_fields("web", "later"), None);
    assert_eq!(refusals.why("web", "u-web", &served(&[22])), Some("not 22"));
    // To another address.
    let again = fields("web", "to 10.0.2.4");
    let both = [again.clone(), ports.clone()];
    assert_eq!(refusals.next(&both, secs(0)), [&again]);
    refusals.written(std::slice::from_ref(&again));
    assert_eq!(refusals.why_fields("web", "u-web"), None);
    assert_eq!(refusals.why_not(&ports), Some("not 22"));
}

#[test]
fn shr_3_the_reason_stays_until_an_edited_change_is_tried_by_itself() {
    let mut refusals = Refusals::default();
    let one = |text: &str| [fields("b", text)];
    for _ in 0..2 {
        refusals.refused(&one("x"), "not x", secs(0), pause);
    }
    let why = |refusals: &Refusals| refusals.why_fields("b", "u-b").map(str::to_owned);
    // Together with the ports of another one.
    let both = [one("y").to_vec(), vec![adding("c", &[22])]].concat();
    refusals.refused(&both, "not y", secs(0), pause);
    assert_eq!(why(&refusals).as_deref(), Some("not x"));
    refusals.refused(&one("y"), "not y", secs(0), pause);
    assert_eq!(why(&refusals).as_deref(), Some("not y"));
    let later = Change {
        uid: "later".to_owned(),
        ..fields("b", "z")
    };
    refusals.refused(&[later], "not z", secs(0), pause);
    assert_eq!(refusals.why_fields("b", "later"), None);
}
