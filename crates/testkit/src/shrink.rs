//! [`shortest`]: removes from a sequence of commands everything that a difference does not need.

/// A command as the list of its arguments.
pub type Command = Vec<Vec<u8>>;

/// The shortest sequence found for which `differs` returns true. `differs` must return true for `commands`. Removes
/// pieces, smaller and smaller ones, then single arguments. Calls `differs` at most `tries_max` times.
pub fn shortest(
    commands: &[Command],
    tries_max: usize,
    differs: &mut dyn FnMut(&[Command]) -> bool,
) -> Vec<Command> {
    let mut tries_left = tries_max;
    let mut still_differs = |candidate: &[Command]| {
        tries_left = tries_left.saturating_sub(1);
        tries_left > 0 && differs(candidate)
    };
    let mut best = commands.to_vec();
    let mut piece = best.len().div_ceil(2).max(1);
    loop {
        let before = best.len();
        let mut from = 0;
        while from < best.len() {
            let to = (from + piece).min(best.len());
            let candidate = [&best[..from], &best[to..]].concat();
            if still_differs(&candidate) {
                best = candidate;
            } else {
                from = to;
            }
        }
        if piece > 1 {
            piece = piece.div_ceil(2);
        } else if best.len() == before {
            break;
        }
    }
    for at in 0..best.len() {
        let mut argument = best[at].len();
        while argument > 1 {
            argument -= 1;
            let mut candidate = best.clone();
            candidate[at].remove(argument);
            if still_differs(&candidate) {
                best = candidate;
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(lines: &[String]) -> Vec<Command> {
        lines.iter().map(|line| line.split(' ').map(|word| word.as_bytes().to_vec()).collect()).collect()
    }

    #[test]
    fn unnecessary_commands_are_removed() {
        let mut lines: Vec<String> = (0..200).map(|i| format!("SET key:{i} v")).collect();
        lines[17] = "SADD s a b c".into();
        lines[93] = "SREM s b".into();
        lines[190] = "SCARD s x".into();
        let has = |all: &[Command], name: &str, word: &str| {
            all.iter().position(|c| c[0] == name.as_bytes() && c.iter().any(|w| w == word.as_bytes()))
        };
        let mut asked = 0;
        let mut differs = |all: &[Command]| {
            asked += 1;
            let places = (has(all, "SADD", "b"), has(all, "SREM", "b"), has(all, "SCARD", "s"));
            matches!(places, (Some(a), Some(b), Some(c)) if a < b && b < c)
        };
        let left = shortest(&commands(&lines), 10_000, &mut differs);
        assert_eq!(left, commands(&["SADD b".into(), "SREM b".into(), "SCARD s".into()]));
        assert!(asked < 400, "{asked}");
        assert_eq!(shortest(&commands(&lines), 1, &mut |_| true), commands(&lines), "no tries are left");
    }
}
