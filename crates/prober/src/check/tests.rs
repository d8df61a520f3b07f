use super::*;

fn raw(success: i64, failure: i64, period: i64, timeout: i64) -> HealthCheck {
    HealthCheck::new(
        Some(80),
        Some(success),
        Some(failure),
        Some(period),
        Some(timeout),
    )
    .unwrap()
    .unwrap()
}

fn values(check: HealthCheck) -> (u32, u32, u64, u64) {
    (
        check.success_threshold(),
        check.failure_threshold(),
        check.period().as_secs(),
        check.timeout().as_secs(),
    )
}

#[test]
fn hc_defaults_where_a_value_is_zero_absent_or_negative() {
    let defaults = (1, 3, 5, 3);
    let absent = HealthCheck::new(Some(80), None, None, None, None)
        .unwrap()
        .unwrap();
    assert_eq!(values(absent), defaults);
    assert_eq!(values(raw(0, 0, 0, 0)), defaults);
    assert_eq!(values(raw(-1, i64::MIN, -5, -3)), defaults);
    assert_eq!(
        absent,
        HealthCheck::with_defaults(NonZeroU16::new(80).unwrap())
    );
}

#[test]
fn hc_values_are_kept_and_hostile_ones_lowered() {
    assert_eq!(values(raw(2, 4, 10, 1)), (2, 4, 10, 1));
    assert_eq!(values(raw(1, 1, 86_400, 120)), (1, 1, 86_400, 120));
    assert_eq!(
        values(raw(i64::MAX, i64::MAX, i64::MAX, i64::MAX)),
        (u32::MAX, u32::MAX, 86_400, 120)
    );
    assert_eq!(values(raw(1, 1, 86_401, 121)), (1, 1, 86_400, 120));
}

#[test]
fn hc_port_zero_or_absent_is_off_and_no_tcp_port_is_an_error() {
    let port = |port| HealthCheck::new(port, None, None, None, None).map(|c| c.map(|c| c.port()));
    assert_eq!(port(None), Ok(None));
    assert_eq!(port(Some(0)), Ok(None));
    assert_eq!(port(Some(1)), Ok(Some(1)));
    assert_eq!(port(Some(65_535)), Ok(Some(65_535)));
    assert_eq!(port(Some(65_536)), Err(PortOutOfRange(65_536)));
    assert_eq!(port(Some(-1)), Err(PortOutOfRange(-1)));
    assert_eq!(
        PortOutOfRange(-1).to_string(),
        "health check port -1 is not between 0 and 65535"
    );
}
