//! Suggestions for misspelt words.

/// The candidate nearest to `word`, if one is near.
pub fn nearest<'c>(word: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    // A word of this length is no slip of a name; comparing takes its square.
    const LENGTH_MAX: usize = 100;
    if word.len() > LENGTH_MAX {
        return None;
    }
    let fold = |text: &str| text.to_lowercase().replace('_', "-");
    let word = fold(word);
    let reach = (word.chars().count() / 3).max(1);
    candidates
        .map(|candidate| {
            (
                strsim::damerau_levenshtein(&word, &fold(candidate)),
                candidate,
            )
        })
        .filter(|(distance, _)| *distance <= reach)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// "did you mean …?", or all there are (as "`what`: …").
pub fn help<'c>(
    word: &str,
    candidates: impl Iterator<Item = &'c str> + Clone,
    what: &str,
) -> String {
    match nearest(word, candidates.clone()) {
        Some(candidate) => format!("did you mean `{candidate}`?"),
        None => {
            let all = list(candidates.map(|candidate| format!("`{candidate}`")), "and");
            format!("{what}: {all}")
        }
    }
}

/// The refusal (a predicate, then the help) of a word that is none of the choices.
pub fn unknown<'c>(word: &str, choices: impl Iterator<Item = &'c str> + Clone) -> String {
    let all = |joint| list(choices.clone().map(|choice| format!("\"{choice}\"")), joint);
    match nearest(word, choices.clone()) {
        Some(choice) if choices.clone().count() == 1 => {
            format!("cannot be {word:?}\ndid you mean \"{choice}\"?")
        }
        Some(choice) => format!(
            "cannot be {word:?}\ndid you mean \"{choice}\"? The choices are {}",
            all("and")
        ),
        None => format!("cannot be {word:?}\nwrite {}", all("or")),
    }
}

/// "a, b and c"
pub fn list(words: impl Iterator<Item = String>, joint: &str) -> String {
    const SHOWN_MAX: usize = 32;
    let mut words: Vec<String> = words.collect();
    if words.len() > SHOWN_MAX {
        let more = words.len() - SHOWN_MAX;
        words.truncate(SHOWN_MAX);
        words.push(format!("{more} more"));
    }
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} {joint} {last}", others.join(", ")),
        None => "none".into(),
    }
}
