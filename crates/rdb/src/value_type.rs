//! The numbers of value types in files and payloads. Redis defines them, and they never change.

/// A string.
pub const STRING: u8 = 0;
/// A list, element by element (Redis 3.0 and older).
pub const LIST: u8 = 1;
/// A set, stored member by member.
pub const SET: u8 = 2;
/// A sorted set with scores as text (Redis 3.2 and older).
pub const ZSET: u8 = 3;
/// A hash, stored field by field.
pub const HASH: u8 = 4;
/// A sorted set with binary scores.
pub const ZSET_2: u8 = 5;
/// A module value of Redis 4.0's release candidates.
pub const MODULE_PRE_GA: u8 = 6;
/// A module value.
pub const MODULE_2: u8 = 7;
/// A hash as a zipmap (Redis 2.4 and older).
pub const HASH_ZIPMAP: u8 = 9;
/// A list as a single ziplist.
pub const LIST_ZIPLIST: u8 = 10;
/// A set of integers.
pub const SET_INTSET: u8 = 11;
/// A sorted set as a ziplist.
pub const ZSET_ZIPLIST: u8 = 12;
/// A hash as a ziplist.
pub const HASH_ZIPLIST: u8 = 13;
/// A list of ziplists.
pub const LIST_QUICKLIST: u8 = 14;
/// A stream of Redis 5.0 to 6.2.
pub const STREAM: u8 = 15;
/// A hash as a listpack.
pub const HASH_LISTPACK: u8 = 16;
/// A sorted set as a listpack.
pub const ZSET_LISTPACK: u8 = 17;
/// A list of listpacks and single elements.
pub const LIST_QUICKLIST_2: u8 = 18;
/// A stream of Redis 7.0.
pub const STREAM_2: u8 = 19;
/// A set as a listpack (Redis 7.2).
pub const SET_LISTPACK: u8 = 20;
/// A stream of Redis 7.2.
pub const STREAM_3: u8 = 21;
/// A hash with expiring fields of Redis 7.4's release candidates. In Valkey 9, this number is [`HASH_2`].
pub const HASH_METADATA_PRE_GA: u8 = 22;
/// A hash with expiring fields of Valkey 9.
pub const HASH_2: u8 = 22;
/// A hash with expiring fields as a listpack, of Redis 7.4's release candidates.
pub const HASH_LISTPACK_EX_PRE_GA: u8 = 23;
/// A hash with expiring fields (Redis 7.4).
pub const HASH_METADATA: u8 = 24;
/// A hash with expiring fields as a listpack (Redis 7.4).
pub const HASH_LISTPACK_EX: u8 = 25;
