//! The kernel's text tables as values: mounts, addresses, routes, limits, status. Pure functions from text; shared by the
//! program that looks from inside a container and by the host that knows its own addresses. What cannot be read is left out.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Which part of the file system is mounted.
    pub root: String,
    /// Where.
    pub place: String,
    /// Options of the mount: `ro`, `noexec`, …
    pub options: String,
    /// `tmpfs`, …
    pub kind: String,
    /// Options of the file system: `size=…k`, …
    pub file_system: String,
}

impl Mount {
    /// Whether a mount's own option is set.
    pub fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|word| word == option)
    }

    /// Bytes that a temporary file system may hold; none where it says no size.
    pub fn size(&self) -> Option<u64> {
        let text = self.file_system.split(',').find_map(|word| word.strip_prefix("size="))?;
        let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let unit = match unit {
            "" => 1,
            "k" => 1 << 10,
            "m" => 1 << 20,
            "g" => 1 << 30,
            _ => return None,
        };
        digits.parse::<u64>().ok()?.checked_mul(unit)
    }
}

/// The lines of `/proc/self/mountinfo`.
pub fn mounts(table: &str) -> Vec<Mount> {
    let mount = |line: &str| {
        let (own, after) = line.split_once(" - ")?;
        let mut own = own.split(' ').skip(3);
        let mut after = after.splitn(3, ' ');
        Some(Mount {
            root: unescape(own.next()?),
            place: unescape(own.next()?),
            options: own.next()?.to_owned(),
            kind: after.next()?.to_owned(),
            file_system: after.nth(1)?.to_owned(),
        })
    };
    table.lines().filter_map(mount).collect()
}

/// `\040` is a space: the kernel escapes what would break its table.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if first == b'\\' => {
                bytes.push(byte);
                rest = &after[3..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The IPv4 addresses that `/proc/net/fib_trie` calls local, each once.
pub fn local_v4(table: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut last = None;
    for line in table.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line == "/32 host LOCAL" {
            found.extend(last.filter(|address| !found.contains(address)));
        }
    }
    found
}

/// The IPv6 addresses of `/proc/net/if_inet6`, with their interface.
pub fn local_v6(table: &str) -> Vec<(Ipv6Addr, String)> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u128::from_str_radix(words.next()?, 16).ok()?;
        Some((Ipv6Addr::from(address), words.nth(4)?.to_owned()))
    };
    table.lines().filter_map(address).collect()
}

/// The routes of `/proc/net/route` as `10.0.0.0/8 via 0.0.0.0 dev eth0`.
pub fn routes_v4(table: &str) -> Vec<String> {
    let route = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The kernel writes an address's bytes in the machine's order.
        let address = |n: usize| u32::from_str_radix(words.get(n)?, 16).ok().map(u32::from_be);
        let (to, via, mask) = (Ipv4Addr::from(address(1)?), Ipv4Addr::from(address(2)?), address(7)?.count_ones());
        Some(format!("{to}/{mask} via {via} dev {}", words.first()?))
    };
    table.lines().skip(1).filter_map(route).collect()
}

/// The routes of `/proc/net/ipv6_route` that lead anywhere, those of `lo` left out.
pub fn routes_v6(table: &str) -> Vec<String> {
    let route = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let address = |n: usize| u128::from_str_radix(words.get(n)?, 16).ok().map(Ipv6Addr::from);
        let bits = u8::from_str_radix(words.get(1)?, 16).ok()?;
        let interface = *words.last()?;
        (interface != "lo").then(|| Some(format!("{}/{bits} via {} dev {interface}", address(0)?, address(4)?)))?
    };
    table.lines().filter_map(route).collect()
}

/// Soft and hard limit of a row of `/proc/self/limits`.
pub fn limit(table: &str, name: &str) -> Option<(String, String)> {
    let mut words = table.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace();
    Some((words.next()?.to_owned(), words.next()?.to_owned()))
}

/// The value of a row `Name:\tvalue`.
pub fn row<'a>(table: &'a str, name: &str) -> Option<&'a str> {
    table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// The path of a controller in `/proc/self/cgroup`; the empty name is version 2's.
pub fn cgroup_path<'a>(table: &'a str, controller: &str) -> Option<&'a str> {
    table.lines().find_map(|line| {
        let (names, path) = line.split_once(':')?.1.split_once(':')?;
        names.split(',').any(|name| name == controller).then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_have_places_options_and_sizes() {
        let table = "121 103 0:57 / /tmp rw,nosuid,nodev,noexec - tmpfs tmpfs rw,size=4096k,mode=700\n\
                     122 103 254:0 /a /with\\040space ro,relatime master:3 shared:4 - ext4 /dev/vda rw,discard\n\
                     108 107 0:55 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                     nonsense\n";
        let mounts = mounts(table);
        assert_eq!(mounts.len(), 3);
        assert!(mounts[0].has("noexec") && !mounts[0].has("exec") && !mounts[0].has("ro"));
        assert_eq!((mounts[0].size(), mounts[1].size(), mounts[2].size()), (Some(4 << 20), None, None));
        assert_eq!((mounts[1].place.as_str(), mounts[1].root.as_str()), ("/with space", "/a"));
    }

    #[test]
    fn addresses_of_both_families_are_found_once() {
        let trie = "Main:\n  +-- 127.0.0.0/8 2 0 2\n        |-- 127.0.0.1\n           /32 host LOCAL\n\
                    |-- 192.0.2.2\n /32 host LOCAL\n |-- 192.0.2.255\n /32 link BROADCAST\n\
                    Local:\n |-- 192.0.2.2\n  /32 host LOCAL\n";
        assert_eq!(local_v4(trie), [Ipv4Addr::LOCALHOST, Ipv4Addr::new(192, 0, 2, 2)]);
        let table =
            "fe8000000000000000fc00fffe000001 02 40 20 80     eth0\n00000000000000000000000000000001 01 80 10 80 lo\n";
        let found = local_v6(table);
        assert_eq!(found[0], ("fe80::fc:ff:fe00:1".parse().unwrap(), "eth0".to_owned()));
        assert_eq!(found[1].0, Ipv6Addr::LOCALHOST);
    }

    #[test]
    fn routes_say_where_they_lead() {
        let v4 = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n\
                  eth0\t00000000\t0101A8C0\t3\t0\t0\t0\t00000000\t0\n";
        assert_eq!(routes_v4(v4), ["0.0.0.0/0 via 192.168.1.1 dev eth0"]);
        let v6 =
            format!("{z} 00 {z} 00 {z} ffffffff 1 0 200200 lo\n{z} 00 {z} 00 {z} 1 1 0 3 eth0\n", z = "0".repeat(32));
        assert_eq!(routes_v6(&v6), ["::/0 via :: dev eth0"]);
    }

    #[test]
    fn rows_limits_and_controllers_are_found_by_their_whole_name() {
        let limits = "Max open files            64                   128                  files     \n";
        assert_eq!(limit(limits, "Max open files"), Some(("64".to_owned(), "128".to_owned())));
        assert_eq!(row("Seccomp:\t2\nSeccomp_filters:\t1\n", "Seccomp"), Some("2"));
        let cgroup = "9:name=systemd:/x\n8:pids:/docker/1\n4:cpu,cpuacct:/docker/2\n0::/docker/3\n";
        let paths = ["pids", "cpu", "", "memory"].map(|name| cgroup_path(cgroup, name));
        assert_eq!(paths, [Some("/docker/1"), Some("/docker/2"), Some("/docker/3"), None]);
    }
}
