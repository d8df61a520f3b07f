//! The interface of the default route, from the text of `/proc/net/route`. Pure.

/// Flag of a route that is usable.
const RTF_UP: u32 = 1;
/// Metric of a route whose metric cannot be read: the last choice.
const LAST: u32 = u32::MAX;

/// The interface of the IPv4 default route with the lowest metric; `None` if there is no such route.
pub fn interface(routes: &str) -> Option<&str> {
    let default = routes.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace();
        let interface = fields.next()?;
        let destination = fields.next()?;
        // After the gateway.
        let flags = u32::from_str_radix(fields.nth(1)?, 16).ok()?;
        // After the two counters.
        let metric = fields.nth(2)?.parse().unwrap_or(LAST);
        let mask = fields.next()?;
        let is_default = destination == "00000000" && mask == "00000000" && flags & RTF_UP != 0;
        is_default.then_some((metric, interface))
    });
    default
        .min_by_key(|(metric, _)| *metric)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dhc_1_the_default_route_with_the_lowest_metric() {
        let title =
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
        let cases = [
            ("", None),
            (
                "eth0\t0064A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n",
                None,
            ),
            (
                "eth0\t00000000\t0164A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n",
                Some("eth0"),
            ),
            (
                "a\t00000000\t0164A8C0\t0003\t0\t0\t200\t00000000\t0\t0\t0\n\
                 mgmt-br\t00000000\t0164A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n",
                Some("mgmt-br"),
            ),
            // Half of all addresses, and a route that is down.
            (
                "tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0\n",
                None,
            ),
            (
                "a\t00000000\t0164A8C0\t0002\t0\t0\t0\t00000000\t0\t0\t0\n",
                None,
            ),
            ("broken\nline 2\n", None),
        ];
        for (routes, expected) in cases {
            assert_eq!(interface(&format!("{title}{routes}")), expected, "{routes}");
        }
    }
}
