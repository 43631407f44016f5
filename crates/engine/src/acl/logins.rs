//! [`Logins`]: makes addresses with many failed logins wait before the next try.
//!
//! Failures are counted by address (IPv6: by network of 64 bits), and one failure per second is forgotten. While the
//! count exceeds `login-failures-max`, every login from the address waits before the password is checked. So a client
//! that disconnects during the wait has tried no password. The wait grows with the count and is bounded. The session
//! waits, not the worker.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Microseconds that each failure over the limit adds to the wait.
const WAIT_STEP_US: u64 = 250_000;
/// Maximum wait before a login, in microseconds.
pub(crate) const WAIT_US_MAX: u64 = 5_000_000;
/// Time after which one failure is forgotten.
const FORGET_EVERY_US: u64 = 1_000_000;
/// Maximum number of failures that are counted for an address. With more, logins from the address would wait for hours
/// after the last failure.
const FAILURES_MAX: u64 = 1_000;
/// Maximum number of addresses. When that many addresses are known, the address with the fewest failures is forgotten.
const ADDRESSES_MAX: usize = 4_096;

/// The failed logins, by the client's address.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    addresses: Mutex<HashMap<IpAddr, Failures>>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u64,
    /// The time from which failures are forgotten.
    since_us: u64,
}

impl Failures {
    fn at(self, now_us: u64) -> Failures {
        let forgotten = now_us.saturating_sub(self.since_us) / FORGET_EVERY_US;
        let count = self.count.saturating_sub(forgotten);
        let since_us = if count == 0 { now_us } else { self.since_us + forgotten * FORGET_EVERY_US };
        Failures { count, since_us }
    }
}

impl Logins {
    /// The wait of a login from `address` (`ip:port`) now. A `failures_max` of 0 means no wait.
    pub(crate) fn wait_us(&self, address: &str, failures_max: u64, now_us: u64) -> u64 {
        if failures_max == 0 {
            return 0;
        }
        let count = self.addresses.lock().get(&network(address)).map_or(0, |f| f.at(now_us).count);
        (count.saturating_sub(failures_max) * WAIT_STEP_US).min(WAIT_US_MAX)
    }
    /// Counts a failed login from `address`.
    pub(crate) fn record_failure(&self, address: &str, now_us: u64) {
        let mut addresses = self.addresses.lock();
        let network = network(address);
        if !addresses.contains_key(&network) && addresses.len() == ADDRESSES_MAX {
            addresses.retain(|_, f| f.at(now_us).count > 0);
            let fewest = addresses.iter().min_by_key(|(_, f)| f.at(now_us).count).map(|(a, _)| *a);
            if let Some(fewest) = fewest.filter(|_| addresses.len() == ADDRESSES_MAX) {
                addresses.remove(&fewest);
            }
        }
        let failures = addresses.entry(network).or_insert(Failures { count: 0, since_us: now_us });
        let now = failures.at(now_us);
        *failures = Failures { count: (now.count + 1).min(FAILURES_MAX), ..now };
    }
}

/// The network part of an address, because one attacker may have many addresses in one network. All peers without an
/// address (Unix sockets) count as one.
fn network(address: &str) -> IpAddr {
    match address.parse().map(|a: SocketAddr| a.ip().to_canonical()) {
        Ok(IpAddr::V6(ip)) => Ipv6Addr::from(u128::from(ip) >> 64 << 64).into(),
        Ok(ip) => ip,
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "10.0.0.1:5";

    #[test]
    fn waits_start_at_the_limit_grow_end_and_are_per_address() {
        let logins = Logins::default();
        for _ in 0..3 {
            assert_eq!(logins.wait_us(HERE, 3, 0), 0);
            logins.record_failure(HERE, 0);
        }
        assert_eq!(logins.wait_us(HERE, 3, 0), 0);
        logins.record_failure("10.0.0.1:6", 0);
        assert_eq!(logins.wait_us(HERE, 3, 0), WAIT_STEP_US);
        assert_eq!(logins.wait_us("10.0.0.2:5", 3, 0), 0);
        assert_eq!(logins.wait_us(HERE, 0, 0), 0, "switched off");
        assert_eq!(logins.wait_us(HERE, 3, FORGET_EVERY_US), 0);
        for _ in 0..2 * FAILURES_MAX {
            logins.record_failure(HERE, FORGET_EVERY_US);
        }
        assert_eq!(logins.wait_us(HERE, 3, FORGET_EVERY_US), WAIT_US_MAX);
        assert_eq!(logins.wait_us(HERE, 3, (FAILURES_MAX - 1) * FORGET_EVERY_US), 0);
    }

    #[test]
    fn networks_are_counted_separately_and_their_number_is_bounded() {
        assert_eq!(network("[2001:db8::1:2]:5"), network("[2001:db8::9]:7"));
        assert_ne!(network("[2001:db8::1]:5"), network("[2001:db8:0:1::1]:5"));
        assert_eq!(network("[::ffff:10.0.0.1]:5"), network(HERE));
        let logins = Logins::default();
        logins.record_failure(HERE, 0);
        logins.record_failure(HERE, 0);
        for i in 0..2 * ADDRESSES_MAX {
            logins.record_failure(&format!("10.1.{}.{}:1", i / 256, i % 256), 0);
        }
        let known = logins.addresses.lock();
        assert!(known.len() == ADDRESSES_MAX && known.contains_key(&network(HERE)));
    }
}
