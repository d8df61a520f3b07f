use super::*;

fn ports(all: &[u16]) -> Vec<Served> {
    let served = |port: &u16| Served {
        port: *port,
        protocol: "TCP",
    };
    all.iter().map(served).collect()
}

fn added(all: &[(&str, &[u16])]) -> Added {
    let of = |(name, its): &(&str, &[u16])| ((*name).to_owned(), ports(its));
    all.iter().map(of).collect()
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn shr_3_the_one_whose_port_is_refused_is_found_and_left_out() {
    let mut refusals = Refusals::default();
    let both = added(&[("a", &[81]), ("b", &[7777])]);
    refusals.refused(&both, "no", secs(10));
    assert_eq!(refusals.retry_in(secs(10)), None);
    assert!(refusals.is_one_at_a_time(secs(69)) && !refusals.is_one_at_a_time(secs(70)));
    // It is not known whose.
    assert_eq!((refusals.why("a"), refusals.why("b")), (None, None));
    refusals.written(&added(&[("a", &[81])]));
    refusals.refused(&added(&[("b", &[7777])]), "not 7777", secs(11));
    assert_eq!(refusals.retry_in(secs(11)), Some(secs(1)));
    assert!(refusals.leaves_out("b", &ports(&[7777]), secs(11)));
    assert!(!refusals.leaves_out("a", &ports(&[81]), secs(11)));
    // It wants another one by now.
    assert!(!refusals.leaves_out("b", &ports(&[82]), secs(11)));
    // The rest can be written meanwhile, which says nothing of it.
    refusals.written(&Added::new());
    assert_eq!(refusals.why("b"), Some("not 7777"));
    assert_eq!(refusals.why("a"), None);
    refusals.written(&added(&[("b", &[7777])]));
    assert!(!refusals.is_empty(secs(12)));
    assert!(refusals.is_empty(secs(70)));
}

#[test]
fn shr_3_refused_ports_are_tried_again_with_a_back_off() {
    let mut refusals = Refusals::default();
    let one = added(&[("b", &[7777])]);
    let mut now = secs(0);
    for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
        refusals.refused(&one, "no", now);
        assert_eq!(refusals.retry_in(now), Some(secs(pause)));
        assert!(refusals.leaves_out("b", &ports(&[7777]), now));
        now += secs(pause);
        assert_eq!(refusals.retry_in(now), None);
        assert!(!refusals.leaves_out("b", &ports(&[7777]), now));
        // It is told so all the time.
        assert_eq!(refusals.why("b"), Some("no"));
    }
    refusals.refused(&added(&[("b", &[7778])]), "no", now);
    assert_eq!(refusals.retry_in(now), Some(secs(1)));
}

#[test]
fn shr_3_a_service_that_is_refused_as_it_is_concerns_all() {
    let mut refusals = Refusals::default();
    let long = "\u{e4}".repeat(1_000);
    refusals.refused(&Added::new(), &long, secs(0));
    assert_eq!(refusals.why("a"), Some(&*"\u{e4}".repeat(256)));
    refusals.written(&Added::new());
    assert_eq!(refusals.why("a"), None);
    assert!(refusals.is_empty(secs(0)));
}
