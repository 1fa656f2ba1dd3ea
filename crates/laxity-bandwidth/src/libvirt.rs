//! libvirt, asked by its own program `virsh` for the interfaces of domains. libvirt may take its time
//! or be away, so a thread asks while the daemon goes on.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::agreements::Attachment;

/// Upper bound of an answer's length: a line for each of a domain's cards.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Seconds after which a question is given up.
const ANSWER_S: &str = "10";
/// Pause before a question is repeated for the first time; it doubles with each repetition. A domain
/// that starts has its interface before libvirt tells of it.
const AGAIN_FIRST: Duration = Duration::from_millis(50);
/// The longest pause. After it nothing is repeated if libvirt has answered everything: the kernel
/// tells of each new interface.
const AGAIN_LAST: Duration = Duration::from_secs(30);

/// The interface of each of a domain's cards, in the order of its configuration; `None` for a card
/// that has none now.
pub type CardInterfaces = Vec<Option<String>>;

/// Asks libvirt for the interfaces of a domain.
///
/// # Errors
///
/// In words for people, if it does not answer or knows no domain of this name.
pub fn interfaces(domain: &str) -> Result<CardInterfaces, String> {
    /// The exit codes of `timeout` for a program that it killed, and for one that is not there.
    /// It may also die with the program, and have none.
    const KILLED: i32 = 137;
    const NOT_THERE: i32 = 127;
    let failed = |error: io::Error| format!("virsh cannot be asked: {error}");
    let (mut said, speaker) = io::pipe().map_err(failed)?;
    let mut child = Command::new("timeout")
        // Other signals may be blocked, as they are in the daemon.
        .args(["--signal=KILL", ANSWER_S, "virsh", "--readonly"])
        .args(["--connect", "qemu:///system", "domiflist", "--domain"])
        .arg(domain)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(speaker.try_clone().map_err(failed)?)
        .stderr(speaker)
        .spawn()
        .map_err(failed)?;
    let mut text = Vec::new();
    let read = said.by_ref().take(ANSWER_BYTES_MAX).read_to_end(&mut text);
    // With no reader left, one that goes on to speak ends.
    drop(said);
    let status = child.wait().map_err(failed)?;
    read.map_err(failed)?;
    let text = String::from_utf8_lossy(&text);
    match status.code() {
        Some(0) => Ok(parse(&text)),
        Some(KILLED) | None => Err(format!("libvirt has not answered in {ANSWER_S} s")),
        Some(NOT_THERE) => Err("there is no program virsh (Debian: libvirt-clients)".into()),
        _ => {
            let complaint = text.lines().find(|line| !line.trim().is_empty());
            let complaint = complaint.unwrap_or("nothing").trim_start_matches("error: ");
            Err(format!("virsh says: {complaint}"))
        }
    }
}

/// Parses what `virsh domiflist` prints: a head, a line of dashes, and a line for each card, which
/// begins with the interface, or `-`.
pub fn parse(text: &str) -> CardInterfaces {
    let is_dashes = |line: &&str| !line.is_empty() && line.chars().all(|c| c == '-');
    let mut lines = text.lines().map(str::trim);
    let _head = lines.find(|line| is_dashes(line));
    let first = |line: &str| line.split_whitespace().next().map(String::from);
    lines
        .filter_map(first)
        .map(|name| Some(name).filter(|name| name != "-"))
        .collect()
}

/// What libvirt has answered about domains, each of which it was asked for once.
#[derive(Debug, Default)]
pub struct Asked(RefCell<BTreeMap<String, Result<CardInterfaces, String>>>);

impl Asked {
    /// The interface of a card of a domain, by its number; `None` if it has none now.
    ///
    /// # Errors
    ///
    /// The same as for [`interfaces`].
    pub fn interface(&self, domain: &str, number: usize) -> Result<Option<String>, String> {
        let mut answers = self.0.borrow_mut();
        let answer = answers.entry(domain.into());
        let cards = answer.or_insert_with(|| interfaces(domain)).as_ref();
        cards
            .map(|cards| cards.get(number - 1).cloned().flatten())
            .map_err(String::clone)
    }
}

/// The interfaces that cards have, as far as libvirt has told.
pub struct Cards {
    found: HashMap<Attachment, String>,
    /// Why domains could not be asked for, which is told once.
    complaints: HashMap<String, String>,
    /// Number of the last question: answers to earlier ones may be out of date.
    round: u64,
    is_asked: bool,
    /// Made with the first question.
    thread: Option<Sender<Question>>,
    answers: (Sender<Answer>, Receiver<Answer>),
    /// Readable while there are answers.
    ready: Arc<EventFd>,
}

struct Question {
    round: u64,
    domains: BTreeSet<String>,
}

struct Answer {
    round: u64,
    domain: String,
    interfaces: Result<CardInterfaces, String>,
}

impl Cards {
    /// None is known yet.
    ///
    /// # Errors
    ///
    /// If the system has no descriptor left.
    pub fn new() -> nix::Result<Cards> {
        let ready = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Cards {
            found: HashMap::new(),
            complaints: HashMap::new(),
            round: 0,
            is_asked: false,
            thread: None,
            answers: channel(),
            ready: Arc::new(ready),
        })
    }

    /// The name of an attachment's interface, if it is known.
    pub fn name<'a>(&'a self, at: &'a Attachment) -> Option<&'a str> {
        match at {
            Attachment::Interface(name) => Some(name),
            Attachment::Card { .. } => self.found.get(at).map(String::as_str),
        }
    }

    /// Takes what libvirt has answered at the start.
    pub fn learn_all(&mut self, asked: Asked, is_there: impl Fn(&str) -> bool) {
        for (domain, answer) in asked.0.into_inner() {
            if let Ok(interfaces) = answer {
                self.learn(&domain, &interfaces, &is_there);
            }
        }
    }

    /// Takes what libvirt has told of a domain. Returns whether anything is new. An interface that is
    /// not there does not count: libvirt notices later than the kernel that a domain has ended, and
    /// the next interface of that name may be another's.
    fn learn(
        &mut self,
        domain: &str,
        interfaces: &CardInterfaces,
        is_there: impl Fn(&str) -> bool,
    ) -> bool {
        let mut is_new = false;
        for (before, interface) in interfaces.iter().enumerate() {
            let at = Attachment::Card {
                domain: domain.into(),
                number: before + 1,
            };
            is_new |= match interface.as_ref().filter(|name| is_there(name)) {
                Some(name) => self.found.insert(at, name.clone()).as_ref() != Some(name),
                None => self.found.remove(&at).is_some(),
            };
        }
        is_new
    }

    /// An interface has gone: the next one of its name may be another domain's.
    pub fn forget(&mut self, name: &str) {
        self.found.retain(|_, found| found != name);
    }

    /// Asks for domains until libvirt has told of them, or others are asked for.
    ///
    /// # Errors
    ///
    /// If the thread that asks cannot be started.
    pub fn ask(&mut self, domains: BTreeSet<String>) -> io::Result<()> {
        if domains.is_empty() && !self.is_asked {
            return Ok(());
        }
        self.is_asked = !domains.is_empty();
        self.round += 1;
        let question = Question {
            round: self.round,
            domains,
        };
        let thread = match &self.thread {
            Some(thread) => thread,
            None => {
                let (sender, questions) = channel();
                let (answers, ready) = (self.answers.0.clone(), Arc::clone(&self.ready));
                let named = thread::Builder::new().name("libvirt".into());
                named.spawn(move || ask_on(&questions, &answers, &ready))?;
                self.thread.insert(sender)
            }
        };
        thread
            .send(question)
            .map_err(|_| io::Error::other("the thread that asks libvirt has ended"))
    }

    /// What to wait for: readable while there are answers.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Takes the answers. Returns whether anything is new, and what could not be found out for the
    /// first time: a domain and the reason.
    pub fn hear(&mut self, is_there: impl Fn(&str) -> bool) -> (bool, Vec<(String, String)>) {
        // Nothing to read means that nothing was written since the last time.
        let _ = self.ready.read();
        let mut is_new = false;
        let mut complaints = Vec::new();
        while let Ok(answer) = self.answers.1.try_recv() {
            match answer.interfaces {
                Ok(interfaces) => {
                    self.complaints.remove(&answer.domain);
                    is_new |= answer.round == self.round
                        && self.learn(&answer.domain, &interfaces, &is_there);
                }
                Err(why) => {
                    if self.complaints.get(&answer.domain) != Some(&why) {
                        complaints.push((answer.domain.clone(), why.clone()));
                    }
                    self.complaints.insert(answer.domain, why);
                }
            }
        }
        (is_new, complaints)
    }
}

/// Answers questions, the last one again and again.
fn ask_on(questions: &Receiver<Question>, answers: &Sender<Answer>, ready: &EventFd) {
    let Ok(mut question) = questions.recv() else {
        return;
    };
    let mut pause = AGAIN_FIRST;
    loop {
        let mut is_over = pause > AGAIN_LAST;
        for domain in &question.domains {
            let interfaces = interfaces(domain);
            is_over &= interfaces.is_ok();
            let answer = Answer {
                round: question.round,
                domain: domain.clone(),
                interfaces,
            };
            if answers.send(answer).is_err() || ready.write(1).is_err() {
                return;
            }
        }
        let next = if is_over || question.domains.is_empty() {
            questions.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            questions.recv_timeout(pause.min(AGAIN_LAST))
        };
        match next {
            Ok(next) => {
                // A later question has all that is still to be asked.
                question = questions.try_iter().last().unwrap_or(next);
                pause = AGAIN_FIRST;
            }
            Err(RecvTimeoutError::Timeout) => pause = (pause * 2).min(AGAIN_LAST * 2),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_virsh_prints() {
        let one = |name: &str| Some(name.to_string());
        let text = " Interface   Type     Source    Model    MAC\n\
                    -----------------------------------------------------------\n \
                    vnet0       bridge   br 0      virtio   52:54:00:12:34:56\n \
                    -           network  default   e1000    52:54:00:12:34:57\n \
                    tap-3       ethernet -         virtio   52:54:00:12:34:58\n\n";
        assert_eq!(parse(text), [one("vnet0"), None, one("tap-3")]);
        let none = " Interface   Type   Source   Model   MAC\n----------------------\n\n";
        assert_eq!(parse(none), CardInterfaces::new());
        for wrong in ["", "\n", "error: no", "- - -\nvnet0"] {
            assert_eq!(parse(wrong), CardInterfaces::new(), "{wrong:?}");
        }
    }

    #[test]
    fn a_card_loses_its_interface_with_the_interface() {
        let mut cards = Cards::new().unwrap();
        let card = |number| Attachment::Card {
            domain: "media".into(),
            number,
        };
        let told = vec![Some("vnet0".to_string()), Some("vnet1".to_string())];
        let all = |_: &str| true;
        assert!(!cards.learn("media", &told, |_| false));
        assert_eq!(cards.name(&card(1)), None);
        assert!(cards.learn("media", &told, all));
        assert!(!cards.learn("media", &told, all));
        assert_eq!(cards.name(&card(2)), Some("vnet1"));
        cards.forget("vnet1");
        assert_eq!(
            (cards.name(&card(1)), cards.name(&card(2))),
            (Some("vnet0"), None)
        );
        assert!(cards.learn("media", &vec![None, None], all));
        assert_eq!(cards.name(&card(1)), None);
        let plain = Attachment::Interface("tap0".into());
        assert_eq!(cards.name(&plain), Some("tap0"));
    }

    #[test]
    fn an_answer_to_an_earlier_question_may_be_out_of_date() {
        let mut cards = Cards::new().unwrap();
        let answer = |round, interfaces| Answer {
            round,
            domain: "media".into(),
            interfaces,
        };
        let vnet0 = || Ok(vec![Some("vnet0".to_string())]);
        cards.round = 2;
        cards.answers.0.send(answer(1, vnet0())).unwrap();
        assert_eq!(cards.hear(|_| true), (false, vec![]));
        cards.answers.0.send(answer(2, vnet0())).unwrap();
        assert_eq!(cards.hear(|_| true), (true, vec![]));
        // A complaint is made once, until libvirt has answered.
        let complaint = || ("media".to_string(), "away".to_string());
        for (said, complaints) in [
            (Err("away".into()), vec![complaint()]),
            (Err("away".into()), vec![]),
            (vnet0(), vec![]),
            (Err("away".into()), vec![complaint()]),
        ] {
            cards.answers.0.send(answer(2, said)).unwrap();
            assert_eq!(cards.hear(|_| true), (false, complaints));
        }
    }
}
