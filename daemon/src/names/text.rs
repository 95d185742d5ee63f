//! Text from a cluster, made fit to be shown: whoever may create a pod chooses its annotations.

use std::sync::Arc;

/// Bytes of an attribute's value.
pub(super) const VALUE: usize = 128;
/// Bytes of an object's name: the most that Kubernetes allows. Cut shorter, it would join with nothing.
pub(super) const NAME: usize = 253;

/// `text` without blanks at its ends, of at most `bytes` bytes, cut between characters. What would not show, or
/// would change how other text shows, becomes U+FFFD.
pub(super) fn shown(text: &str, bytes: usize) -> Arc<str> {
    let mut clean = String::new();
    for character in text.trim().chars() {
        let character = if is_hidden(character) { char::REPLACEMENT_CHARACTER } else { character };
        if clean.len() + character.len_utf8() > bytes {
            break;
        }
        clean.push(character);
    }
    // The cut may have come after a blank.
    clean.trim_end().into()
}

/// Control characters, line and paragraph separators, and marks of direction or of no width.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Whether `text` can be an identity as it stands: these are compared, so they are never changed to fit.
pub(super) fn is_identity(text: &str, bytes: usize) -> bool {
    !text.is_empty() && text.len() <= bytes && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_that_can_be_shown_stays_as_it_is() {
        for text in ["vision", "größe-XL", "模型", "a b", "\"quoted\" \\ back", "🚀"] {
            assert_eq!(&*shown(text, VALUE), text);
        }
    }

    #[test]
    fn what_does_not_show_is_made_visible() {
        assert_eq!(&*shown("a\nb\tc\u{0}d\u{202e}e\u{200b}f\u{2028}g\u{85}", VALUE), "a�b�c�d�e�f�g");
        assert_eq!(&*shown("x\u{7}", VALUE), "x�");
        assert_eq!(&*shown("  spaces  ", VALUE), "spaces");
        assert_eq!(&*shown(" \n ", VALUE), "");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(shown(&"x".repeat(4096), VALUE).len(), 128);
        // 43 three-byte characters would be 129 bytes.
        assert_eq!(&*shown(&"模".repeat(4096), VALUE), "模".repeat(42));
        assert_eq!(&*shown("ab cd", 3), "ab", "no blank is left at the cut");
    }

    proptest! {
        #[test]
        fn any_text_is_bounded_and_free_of_control(text in any::<String>(), bytes in 0..300_usize) {
            let clean = shown(&text, bytes);
            prop_assert!(clean.len() <= bytes);
            prop_assert!(!clean.chars().any(is_hidden));
            prop_assert_eq!(&shown(&clean, bytes), &clean);
        }
    }
}
