//! Positions on the earth as scores of a sorted set: redis-server's 52-bit geohash, distances, and the ranges of
//! scores that cover a circle or a box ([`cover`]).
//!
//! Longitude and latitude are each divided into 2^26 steps. A score interleaves the bits of both numbers, with a
//! bit of latitude as the lowest. So positions that are close together usually have scores with equal high bits.
//! The order of all arithmetic follows redis-server, so that replies have the same digits. Sorted sets, arguments
//! and replies are handled by the commands.

use smallvec::SmallVec;
use std::ops::Range;

/// Highest longitude, east or west, of a position that can be stored.
pub const LONGITUDE_MAX: f64 = 180.0;
/// Highest latitude, north or south, of a position that can be stored: the limit of Web Mercator maps.
pub const LATITUDE_MAX: f64 = 85.05112878;

/// Number of times that longitude and latitude are halved for a score.
const STEPS_MAX: u32 = 26;
/// Highest latitude of the standard geohash, which the command GEOHASH returns.
const TEXT_LATITUDE_MAX: f64 = 90.0;
/// Number of characters of the geohash that the command GEOHASH returns.
const TEXT_BYTES: usize = 11;
const EARTH_RADIUS_M: f64 = 6372797.560856;
/// Half the equator. A search with a larger radius covers the whole earth.
const MERCATOR_MAX_M: f64 = 20037726.37;
const RADIANS_PER_DEGREE: f64 = std::f64::consts::PI / 180.0;

/// A position in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Degrees east of Greenwich.
    pub longitude: f64,
    /// Degrees north of the equator.
    pub latitude: f64,
}

impl Point {
    /// True when the position can be stored.
    pub fn is_valid(&self) -> bool {
        self.longitude.abs() <= LONGITUDE_MAX && self.latitude.abs() <= LATITUDE_MAX
    }
    /// The score of this position, which must be valid.
    pub fn score(&self) -> f64 {
        Cell::of(self, LATITUDE_MAX, STEPS_MAX).bits as f64
    }
    /// The position of a score: the middle of the cell that the score stands for. Every score has a position.
    pub fn of_score(score: f64) -> Point {
        let area = Cell { bits: bits_of(score), steps: STEPS_MAX }.area();
        let middle = |range: &Range<f64>, max: f64| ((range.start + range.end) / 2.0).clamp(-max, max);
        Point {
            longitude: middle(&area.longitude, LONGITUDE_MAX),
            latitude: middle(&area.latitude, LATITUDE_MAX),
        }
    }
    /// The standard geohash in base 32. It has 11 characters. The last one is always `0`, because 52 bits give only
    /// ten.
    pub fn geohash(&self) -> [u8; TEXT_BYTES] {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = Cell::of(self, TEXT_LATITUDE_MAX, STEPS_MAX).bits;
        std::array::from_fn(|i| match i {
            10 => ALPHABET[0],
            i => ALPHABET[(bits >> (52 - (i + 1) * 5)) as usize & 0x1f],
        })
    }
    /// Distance in metres along the great circle, by the haversine formula.
    pub fn distance_m(&self, other: &Point) -> f64 {
        let [lat1, lon1, lat2, lon2] = [self.latitude, self.longitude, other.latitude, other.longitude]
            .map(|angle| angle * RADIANS_PER_DEGREE);
        let v = ((lon2 - lon1) / 2.0).sin();
        let u = ((lat2 - lat1) / 2.0).sin();
        2.0 * EARTH_RADIUS_M * (u * u + lat1.cos() * lat2.cos() * v * v).sqrt().asin()
    }
}

/// Converts a score to an unsigned integer, as C compilers do.
fn bits_of(score: f64) -> u64 {
    const TOP: f64 = 9_223_372_036_854_775_808.0;
    if score < TOP {
        return score as i64 as u64;
    }
    // A number out of range gives what the processor's instruction would give.
    let above = if score < 2.0 * TOP { (score - TOP) as i64 } else { i64::MIN };
    above as u64 ^ 1 << 63
}

/// The shape of a search, in units of `unit_m` metres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Circle or box, in units of `unit_m`.
    pub form: ShapeForm,
    /// Number of metres per unit.
    pub unit_m: f64,
}

/// Form of a [`Shape`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ShapeForm {
    /// All positions within a distance.
    Circle {
        /// Radius of the circle, in units.
        radius: f64,
    },
    /// All positions at most half the width to the west or east, and at most half the height to the north or south.
    Box {
        /// Extent of the box from west to east, in units.
        width: f64,
        /// Extent of the box from south to north, in units.
        height: f64,
    },
}

impl Shape {
    /// Distance from `center` to `point` in metres, if the point is within the shape around `center`.
    pub fn distance_m(&self, center: &Point, point: &Point) -> Option<f64> {
        match self.form {
            ShapeForm::Circle { radius } => {
                let distance = center.distance_m(point);
                (distance <= radius * self.unit_m).then_some(distance)
            }
            ShapeForm::Box { width, height } => {
                let beside = Point { longitude: center.longitude, latitude: point.latitude };
                let below = Point { longitude: point.longitude, latitude: center.latitude };
                let (x, y) = (point.distance_m(&beside), point.distance_m(&below));
                let is_outside = x > width * self.unit_m / 2.0 || y > height * self.unit_m / 2.0;
                (!is_outside).then(|| center.distance_m(point))
            }
        }
    }

    /// Half the extent from west to east, and half the extent from south to north, in metres.
    fn halves_m(&self) -> (f64, f64) {
        match self.form {
            ShapeForm::Circle { radius } => (self.unit_m * radius, self.unit_m * radius),
            ShapeForm::Box { width, height } => (self.unit_m * (width / 2.0), self.unit_m * (height / 2.0)),
        }
    }
    /// Distance from the centre to the farthest point of the shape, in metres.
    fn radius_m(&self) -> f64 {
        let radius = match self.form {
            ShapeForm::Circle { radius } => radius,
            ShapeForm::Box { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
        };
        radius * self.unit_m
    }
    /// The degrees within which the shape around `center` lies. Its edge away from the equator spans the most
    /// longitudes.
    fn bounds(&self, center: &Point) -> Area {
        let (half_width, half_height) = self.halves_m();
        let latitude_delta = half_height / EARTH_RADIUS_M / RADIANS_PER_DEGREE;
        let farther = match center.latitude < 0.0 {
            true => center.latitude - latitude_delta,
            false => center.latitude + latitude_delta,
        };
        let longitude_delta =
            half_width / EARTH_RADIUS_M / (farther * RADIANS_PER_DEGREE).cos() / RADIANS_PER_DEGREE;
        Area {
            longitude: center.longitude - longitude_delta..center.longitude + longitude_delta,
            latitude: center.latitude - latitude_delta..center.latitude + latitude_delta,
        }
    }
}

/// Ranges of scores that contain all positions within `shape` around a valid `center`. There are at most nine, in
/// redis-server's order. The ranges also contain some positions outside the shape, so the caller must check each
/// position.
pub fn cover(center: &Point, shape: &Shape) -> SmallVec<[Range<f64>; 9]> {
    let bounds = shape.bounds(center);
    let mut steps = steps_for(shape.radius_m(), center.latitude);
    let mut cell = Cell::of(center, LATITUDE_MAX, steps);
    // If the centre is near an edge of its cell, the neighbouring cells may not reach as far as the shape. Then use
    // larger cells.
    let area = |longitude, latitude| cell.moved(longitude, latitude).area();
    let is_too_small = area(0, 1).latitude.end < bounds.latitude.end
        || area(0, -1).latitude.start > bounds.latitude.start
        || area(1, 0).longitude.end < bounds.longitude.end
        || area(-1, 0).longitude.start > bounds.longitude.start;
    if steps > 1 && is_too_small {
        steps -= 1;
        cell = Cell::of(center, LATITUDE_MAX, steps);
    }
    let area = cell.area();
    let is_useless = |longitude: i8, latitude: i8| {
        steps >= 2
            && ((latitude < 0 && area.latitude.start < bounds.latitude.start)
                || (latitude > 0 && area.latitude.end > bounds.latitude.end)
                || (longitude < 0 && area.longitude.start < bounds.longitude.start)
                || (longitude > 0 && area.longitude.end > bounds.longitude.end))
    };
    const ORDER: [(i8, i8); 9] =
        [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
    let (mut ranges, mut last) = (SmallVec::new(), None);
    for (longitude, latitude) in ORDER.into_iter().filter(|(x, y)| !is_useless(*x, *y)) {
        let neighbour = cell.moved(longitude, latitude);
        // With very large cells several neighbours are one cell. As in redis-server, the middle cell is not
        // compared.
        if last == Some(neighbour) {
            continue;
        }
        last = ((longitude, latitude) != (0, 0)).then_some(neighbour);
        ranges.push(neighbour.scores());
    }
    ranges
}

/// Number of halvings after which cells are about as large as a circle of this radius.
fn steps_for(mut radius_m: f64, latitude: f64) -> u32 {
    if radius_m == 0.0 {
        return STEPS_MAX;
    }
    let mut steps = 1;
    while radius_m < MERCATOR_MAX_M {
        radius_m *= 2.0;
        steps += 1;
    }
    // Cells become narrower towards the poles, so use larger ones there.
    let polar = match latitude.abs() {
        latitude if latitude > 80.0 => 2,
        latitude if latitude > 66.0 => 1,
        _ => 0,
    };
    (steps - 2 - polar).clamp(1, STEPS_MAX as i32) as u32
}

/// A rectangle of the map that all positions with some equal high bits share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    bits: u64,
    /// How often longitude and latitude were halved for this cell.
    steps: u32,
}

/// A range of longitudes and a range of latitudes, in degrees.
struct Area {
    longitude: Range<f64>,
    latitude: Range<f64>,
}

/// The bits of a score that are bits of the latitude. The other bits are bits of the longitude.
const LATITUDE_BITS: u64 = 0x5555_5555_5555_5555;

impl Cell {
    /// The cell of `point`, for latitudes up to `latitude_max`.
    fn of(point: &Point, latitude_max: f64, steps: u32) -> Cell {
        let scale = (1u64 << steps) as f64;
        let latitude = (point.latitude + latitude_max) / (latitude_max * 2.0) * scale;
        let longitude = (point.longitude + LONGITUDE_MAX) / (LONGITUDE_MAX * 2.0) * scale;
        Cell { bits: spread(latitude as u32) | spread(longitude as u32) << 1, steps }
    }
    fn area(&self) -> Area {
        let scale = (1u64 << self.steps) as f64;
        let range = |step: u32, max: f64| {
            let edge = |step: u32| -max + f64::from(step) / scale * (max * 2.0);
            edge(step)..edge(step.wrapping_add(1))
        };
        Area {
            longitude: range(gather(self.bits >> 1), LONGITUDE_MAX),
            latitude: range(gather(self.bits), LATITUDE_MAX),
        }
    }
    /// The cell that is this number of cells to the east and to the north. Wraps around the edges of the map.
    fn moved(&self, longitude: i8, latitude: i8) -> Cell {
        let mask = (1u64 << (2 * self.steps)) - 1;
        let step = |bits: u64, others: u64, by: i8| match by {
            0 => bits,
            1.. => bits.wrapping_add((others & mask) + 1),
            ..0 => (bits | others & mask).wrapping_sub((others & mask) + 1),
        };
        let x = step(self.bits & !LATITUDE_BITS, LATITUDE_BITS, longitude) & !LATITUDE_BITS;
        let y = step(self.bits & LATITUDE_BITS, !LATITUDE_BITS, latitude) & LATITUDE_BITS;
        let kept = |bits: u64, by: i8| if by == 0 { bits } else { bits & mask };
        Cell { bits: kept(x, longitude) | kept(y, latitude), steps: self.steps }
    }
    /// The range of the scores of all positions in the cell.
    fn scores(&self) -> Range<f64> {
        let shift = 2 * (STEPS_MAX - self.steps);
        (self.bits << shift) as f64..((self.bits + 1) << shift) as f64
    }
}

/// Inserts a 0 bit above each bit.
fn spread(n: u32) -> u64 {
    const STAGES: [(u32, u64); 5] = [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, LATITUDE_BITS),
    ];
    STAGES.iter().fold(u64::from(n), |bits, (shift, mask)| (bits | bits << shift) & mask)
}
/// Collects every second bit of `bits`, starting with the lowest.
fn gather(bits: u64) -> u32 {
    (0..32).fold(0, |n, i| n | ((bits >> (2 * i)) as u32 & 1) << i)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PALERMO: Point = Point { longitude: 13.361389, latitude: 38.115556 };
    const CATANIA: Point = Point { longitude: 15.087269, latitude: 37.502669 };

    #[test]
    fn digits_are_those_of_redis() {
        // The replies of redis-server 7.0.15 to ZSCORE, GEOHASH, GEODIST and GEOPOS after GEOADD.
        assert_eq!(PALERMO.score(), 3479099956230698.0);
        assert_eq!(CATANIA.score(), 3479447370796909.0);
        let (a, b) = (Point::of_score(PALERMO.score()), Point::of_score(CATANIA.score()));
        assert_eq!(
            format!("{:.17} {:.17}", a.longitude, a.latitude),
            "13.36138933897018433 38.11555639549629859"
        );
        assert_eq!((&a.geohash(), &b.geohash()), (b"sqc8b49rny0", b"sqdtr74hyu0"));
        assert_eq!(format!("{:.4}", a.distance_m(&b)), "166274.1516");
    }

    #[test]
    fn any_score_stands_for_a_position() {
        for score in [f64::INFINITY, f64::NEG_INFINITY, -1.5, 0.0, 1e300, 1.8e19, 9.3e18, f64::MAX, 5e-324] {
            assert!(Point::of_score(score).is_valid(), "{score}");
        }
        assert!(!Point { longitude: f64::NAN, latitude: 0.0 }.is_valid());
        assert!(!Point { longitude: 0.0, latitude: 85.06 }.is_valid());
    }

    fn point() -> impl Strategy<Value = Point> {
        let edge = prop_oneof![Just(-1.0), Just(1.0), Just(0.0)];
        let part = || prop_oneof![4 => -1.0..1.0f64, 1 => edge.clone()];
        (part(), part()).prop_map(|(x, y)| Point { longitude: x * LONGITUDE_MAX, latitude: y * LATITUDE_MAX })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn positions_come_back_within_a_cell(point in point()) {
            let back = Point::of_score(point.score());
            prop_assert!((back.longitude - point.longitude).abs() <= 360.0 / f64::from(1 << 26));
            // At 180 degrees a score has one bit more than a double keeps. redis-server loses this bit, too.
            prop_assert!((back.latitude - point.latitude).abs() <= 4.0 * LATITUDE_MAX / f64::from(1 << 26));
            prop_assert!((0.0..=(1u64 << 52) as f64 * 4.0).contains(&point.score()));
            prop_assert!(spread(gather(point.score() as u64)) == point.score() as u64 & LATITUDE_BITS);
        }
        /// Away from the poles and the edges of the map. There redis-server misses some positions, too.
        #[test]
        fn cover_contains_all_points_within_the_shape(
            longitude in -100.0..100.0f64, latitude in -60.0..60.0f64,
            x in -1.0..1.0f64, y in -1.0..1.0f64,
            radius in prop_oneof![1.0..1e3f64, 1e3..1e6f64], unit_m in prop_oneof![Just(1.0), Just(0.3048)],
            is_box in any::<bool>(),
        ) {
            let center = Point { longitude, latitude };
            let form = if is_box { ShapeForm::Box { width: radius, height: radius / 3.0 } } else { ShapeForm::Circle { radius } };
            let shape = Shape { form, unit_m };
            let degrees = radius * unit_m / 111_000.0;
            let near = Point { longitude: longitude + x * degrees, latitude: latitude + y * degrees };
            let near = Point::of_score(near.score());
            let ranges = cover(&center, &shape);
            prop_assert!(!ranges.is_empty() && ranges.len() <= 9);
            if let Some(distance) = shape.distance_m(&center, &near) {
                prop_assert!(distance <= radius * unit_m);
                prop_assert!(ranges.iter().any(|range| range.contains(&near.score())));
            }
        }
    }
}
