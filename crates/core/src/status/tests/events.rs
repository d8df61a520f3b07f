//! The Events of changed conditions.

use super::*;

#[test]
fn section_9_events_of_refusals_and_recoveries() {
    let ok = || condition(READY, "True", "Ready", "");
    let no = |reason: &str| condition(READY, "False", reason, "why");
    let waiting = || no(WAITING_FOR_EXTERNAL_IP);
    let warning = |reason: &str, text: &str| {
        vec![EventDraft {
            warning: true,
            reason: reason.into(),
            text: text.into(),
        }]
    };
    let recovery = |reason: &str, from: &str| {
        vec![EventDraft {
            warning: false,
            reason: reason.into(),
            text: format!("no longer {from}"),
        }]
    };
    let cases = [
        ("the first Ready is none", None, ok(), vec![]),
        (
            "the first refusal",
            None,
            no("NoAvailableIP"),
            warning("NoAvailableIP", "why"),
        ),
        (
            "a refusal",
            Some(ok()),
            no(NO_BACKEND),
            warning(NO_BACKEND, "why"),
        ),
        ("once", Some(no(NO_BACKEND)), no(NO_BACKEND), vec![]),
        (
            "once, whatever the message says",
            Some(condition(READY, "False", NO_BACKEND, "old words")),
            no(NO_BACKEND),
            vec![],
        ),
        (
            "another refusal",
            Some(no(NO_BACKEND)),
            no(BACKENDS_UNHEALTHY),
            warning(BACKENDS_UNHEALTHY, "why"),
        ),
        (
            "a recovery",
            Some(no(NO_BACKEND)),
            ok(),
            recovery("Ready", NO_BACKEND),
        ),
        ("once", Some(ok()), ok(), vec![]),
        ("a step on the way", None, waiting(), vec![]),
        (
            "a step after a refusal",
            Some(no("NoAvailableIP")),
            waiting(),
            recovery(WAITING_FOR_EXTERNAL_IP, "NoAvailableIP"),
        ),
        (
            "a step back",
            Some(ok()),
            waiting(),
            warning(WAITING_FOR_EXTERNAL_IP, "why"),
        ),
        ("Ready after a step", Some(waiting()), ok(), vec![]),
        (
            "a refusal after a step",
            Some(waiting()),
            no(NO_BACKEND),
            warning(NO_BACKEND, "why"),
        ),
        (
            "what the Go operator left without a reason",
            Some(condition(READY, "True", "", "")),
            ok(),
            vec![],
        ),
        (
            "a refusal that the Go operator left without a reason",
            Some(condition(READY, "False", "", "old words")),
            ok(),
            vec![EventDraft {
                warning: false,
                reason: "Ready".into(),
                text: "ready again".into(),
            }],
        ),
    ];
    for (what, before, after, expected) in cases {
        let before = before.map(|b| vec![b]);
        assert_eq!(
            event_drafts(before.as_deref(), &[after]),
            expected,
            "{what}"
        );
    }
}

#[test]
fn section_9_the_first_health_checks_are_a_step_on_the_way() {
    let ok = || vec![condition(READY, "True", "Ready", "")];
    let waiting = || vec![condition(READY, "False", WAITING_FOR_EXTERNAL_IP, "why")];
    // With any message.
    let failing = || vec![condition(READY, "False", BACKENDS_UNHEALTHY, "why")];
    let first = || {
        let marker = condition(FIRST_HEALTH_CHECKS, "True", FIRST_HEALTH_CHECKS, "");
        [failing(), vec![marker]].concat()
    };
    let warns = |before: Option<&[Condition]>, after: &[Condition]| -> Vec<bool> {
        event_drafts(before, after)
            .iter()
            .map(|n| n.warning)
            .collect()
    };
    assert!(warns(None, &first()).is_empty());
    assert!(warns(Some(&waiting()), &first()).is_empty());
    assert!(warns(Some(&first()), &first()).is_empty());
    assert!(warns(Some(&first()), &ok()).is_empty());
    assert_eq!(warns(Some(&first()), &failing()), [true]);
    assert!(warns(Some(&failing()), &failing()).is_empty());
    assert_eq!(warns(Some(&failing()), &ok()), [false], "a recovery");
    assert_eq!(warns(Some(&ok()), &first()), [true], "it was ready before");
}

#[test]
fn section_9_further_conditions_are_events_when_they_begin() {
    let ok = condition(READY, "True", "Ready", "");
    let lost = condition(
        ADDRESS_LOST,
        "True",
        ADDRESS_LOST,
        "10.0.0.1 belongs to another",
    );
    let expected = [EventDraft {
        warning: true,
        reason: ADDRESS_LOST.into(),
        text: "10.0.0.1 belongs to another".into(),
    }];
    let before = [ok.clone()];
    let after = [ok.clone(), lost];
    assert_eq!(event_drafts(Some(&before), &after), expected);
    assert_eq!(event_drafts(None, &after), expected);
    assert_eq!(event_drafts(Some(&after), &after), []);
    assert_eq!(
        event_drafts(Some(&after), &before),
        [],
        "nothing when they end"
    );
}

#[test]
fn be_8_each_new_message_is_an_event_and_the_same_is_none() {
    let ok = condition(READY, "True", "Ready", "");
    let refused = |who| {
        condition(
            BACKEND_ADDRESS_REFUSED,
            "True",
            BACKEND_ADDRESS_REFUSED,
            who,
        )
    };
    let [one, two] = ["a", "a; b"].map(|who| [ok.clone(), refused(who)]);
    assert_eq!(event_drafts(Some(&one), &one), []);
    let expected = EventDraft {
        warning: true,
        reason: BACKEND_ADDRESS_REFUSED.into(),
        text: "a; b".into(),
    };
    assert_eq!(event_drafts(Some(&one), &two), [expected]);
    // Other conditions cause an Event only when they appear.
    let left_out = |many| condition(BACKENDS_LEFT_OUT, "True", BACKENDS_LEFT_OUT, many);
    assert_eq!(event_drafts(Some(&[left_out("1")]), &[left_out("2")]), []);
}
