//! Subnets for the scope's networks: small blocks from private ranges that overlap neither a route of the host nor a
//! network of the engine. Docker's default pools hold about 30 networks, other people's leftovers included.

use std::net::Ipv4Addr;

/// Where blocks are looked for, in order of preference.
const RANGES: [(Ipv4Addr, u8); 4] = [
    (Ipv4Addr::new(10, 192, 0, 0), 11),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
];

/// An IPv4 block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    base: u32,
    bits: u8,
}

impl Subnet {
    /// A block by its address and prefix length; host bits are taken off.
    pub fn new(address: Ipv4Addr, bits: u8) -> Self {
        let bits = bits.min(32);
        Self { base: u32::from(address) & mask(bits), bits }
    }

    /// `10.83.0.0/29`; none where it is no IPv4 block.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let bits = bits.parse().ok().filter(|bits| *bits <= 32)?;
        Some(Self::new(address.parse().ok()?, bits))
    }

    /// Its n-th address.
    pub fn address(self, n: u32) -> Ipv4Addr {
        Ipv4Addr::from(self.base.wrapping_add(n))
    }

    /// Whether it holds this address.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & mask(self.bits) == self.base
    }

    fn overlaps(self, other: Self) -> bool {
        let bits = self.bits.min(other.bits);
        self.base & mask(bits) == other.base & mask(bits)
    }
}

impl std::fmt::Display for Subnet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.base), self.bits)
    }
}

fn mask(bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)
}

/// Hands out blocks that nobody else has.
#[derive(Debug)]
pub struct Subnets {
    taken: Vec<Subnet>,
    next: u32,
}

impl Subnets {
    /// From what the engine and the host's routing table say; `start` scatters runs that begin at the same time.
    pub fn new(engine: &[String], start: u32) -> Self {
        let engine = engine.iter().filter_map(|text| Subnet::parse(text));
        let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
        Self { taken: engine.chain(routes_of(&routes)).collect(), next: start }
    }

    /// The next free block of this prefix length; none where every range is full.
    pub fn take(&mut self, bits: u8) -> Option<Subnet> {
        for (range, range_bits) in RANGES {
            let blocks = 1_u32 << (bits.saturating_sub(range_bits)).min(24);
            for _ in 0..blocks {
                let block = self.next % blocks;
                self.next = self.next.wrapping_add(1);
                let subnet = Subnet::new(Ipv4Addr::from(u32::from(range) | block << (32 - bits)), bits);
                if !self.taken.iter().any(|taken| taken.overlaps(subnet)) {
                    self.taken.push(subnet);
                    return Some(subnet);
                }
            }
        }
        None
    }

    /// Gives a block back once its network is gone.
    pub fn give_back(&mut self, subnet: Subnet) {
        self.taken.retain(|taken| *taken != subnet);
    }
}

/// The destinations of `/proc/net/route`, the default route left out.
fn routes_of(table: &str) -> Vec<Subnet> {
    let column = |line: &str, n: usize| {
        let text = line.split_whitespace().nth(n)?.to_owned();
        // The kernel writes the address's bytes in the machine's order.
        u32::from_str_radix(&text, 16).ok().map(u32::from_be)
    };
    let route = |line: &str| {
        Some(Subnet::new(Ipv4Addr::from(column(line, 1)?), u8::try_from(column(line, 7)?.count_ones()).ok()?))
    };
    table.lines().skip(1).filter_map(route).filter(|subnet| subnet.bits > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_overlaps_neither_a_route_nor_a_network() {
        let mut subnets = Subnets { taken: vec![Subnet::parse("10.192.0.0/28").unwrap()], next: 0 };
        assert_eq!(subnets.take(29).unwrap().to_string(), "10.192.0.16/29");
        assert_eq!(subnets.take(29).unwrap().to_string(), "10.192.0.24/29");
        let mut full = Subnets { taken: vec![Subnet::parse("10.0.0.0/8").unwrap()], next: 0 };
        assert!(full.take(29).unwrap().to_string().starts_with("172.16."));
    }

    #[test]
    fn a_block_that_was_given_back_can_be_taken_again() {
        let mut subnets = Subnets { taken: RANGES[1..].iter().map(|(a, b)| Subnet::new(*a, *b)).collect(), next: 0 };
        let all: Vec<Subnet> = std::iter::from_fn(|| subnets.take(13)).collect();
        assert_eq!(all.len(), 4);
        subnets.give_back(all[2]);
        assert_eq!(subnets.take(13), Some(all[2]));
    }

    #[test]
    fn the_kernels_routing_table_is_read_in_its_byte_order() {
        let table = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n\
                     eth0\t00000000\t0101A8C0\t3\t0\t0\t0\t00000000\t0\n\
                     docker0\t000011AC\t00000000\t1\t0\t0\t0\t0000FFFF\t0\n";
        assert_eq!(routes_of(table).iter().map(Subnet::to_string).collect::<Vec<_>>(), ["172.17.0.0/16"]);
    }
}
