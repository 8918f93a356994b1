//! Carries a provider call out: admitted, sent, passed on, settled, recorded; or refused in the provider's own form. Owns
//! the order of these; each step is another file's.

use super::evidence::Call;
use super::exchange::{Admitted, Asked, Denied, End, Failure, Passed};
use super::guard::{BodyFault, Request, in_turn};
use super::trial::{Provider, ProviderDoor, Trial};
use super::{Reply, admission, budget::Hold, dialect, disturbed, injected, price, stream};
use crate::policy::{Dialect, FaultKind, FaultPlace};
use std::time::Duration;

/// Serves one request whose token opens `door`. False where the body was left unread.
pub(super) fn serve(trial: &Trial, door: &ProviderDoor, request: &mut Request<'_>, reply: &mut Reply) -> bool {
    let mut call = Call::of(door, &request.head);
    let mut is_read = false;
    match admit(trial, door, request, reply, &mut call, &mut is_read) {
        Ok((admitted, hold)) => {
            let route = admitted.route.to_string();
            let kinds = trial.drills.strike(&FaultPlace::Gateway(door.plan.name.clone()), Some(&route));
            struck(trial, door, (admitted, hold), call, &kinds, reply);
        }
        Err(denied) => {
            trial.evidence.refused(&call, &denied);
            deny(door.plan.dialect(), &denied, reply);
        }
    }
    is_read
}

/// Answers with a refusal in the dialect's form.
pub(super) fn deny(dialect: Dialect, denied: &Denied, reply: &mut Reply) {
    // A target that hung up gets no answer; nothing else depends on it.
    let _ = reply.json(denied.status, &dialect::error_body(dialect, denied));
}

fn admit(
    trial: &Trial,
    door: &ProviderDoor,
    request: &mut Request<'_>,
    reply: &mut Reply,
    call: &mut Call,
    is_read: &mut bool,
) -> Result<(Admitted, Hold), Denied> {
    let line = admission::line(&door.plan, &request.head)?;
    call.route = Some(line.route.to_string());
    let limit = door.plan.rule.limits.request_size;
    let bytes = request.body(limit, reply).map_err(|fault| match fault {
        BodyFault::TooLarge => admission::too_large(limit),
        BodyFault::Broken(why) => Denied::new("framing", "crashlab_malformed_request", why).status(400),
    })?;
    *is_read = true;
    call.request_bytes = bytes.len() as u64;
    let mut asked = Asked::default();
    let head = &request.head;
    let judge = || admission::request(door, line, head, &bytes, &mut asked, &trial.life);
    let admitted = in_turn(bytes.len(), judge);
    call.model = asked.model.map(|model| model.chars().take(200).collect());
    call.stream = asked.stream;
    admitted
}

/// Lets the faults that strike a call have their way with it, before it is forwarded or in place of that.
fn struck(
    trial: &Trial,
    door: &ProviderDoor,
    (mut admitted, hold): (Admitted, Hold),
    mut call: Call,
    kinds: &[FaultKind],
    reply: &mut Reply,
) {
    let delay: Duration =
        kinds.iter().map(|kind| if let FaultKind::Delay(time) = kind { *time } else { Duration::ZERO }).sum();
    // A drill's time is not the provider's.
    admitted.deadline = admitted.deadline.and_then(|deadline| deadline.checked_add(delay));
    if delay > Duration::ZERO && trial.life.wait(delay) {
        door.budget.give_back(hold);
        return reply.cut();
    }
    let dialect = door.plan.dialect();
    if let Some(passed) = kinds.iter().find_map(|kind| injected::answer(kind, dialect, &admitted, reply)) {
        door.budget.give_back(hold);
        return trial.evidence.injected(&call, &passed);
    }
    call.disturbed = !kinds.is_empty();
    // Its bytes go on; what was judged is many times as large, and nobody needs it while the provider answers.
    admitted.body = None;
    carry_out(trial, door, &admitted, hold, call, kinds, reply);
}

fn carry_out(
    trial: &Trial,
    door: &ProviderDoor,
    admitted: &Admitted,
    hold: Hold,
    call: Call,
    kinds: &[FaultKind],
    reply: &mut Reply,
) {
    // Open first, then look: a trial that ends in between finds the call and ends it.
    let Some(id) = trial.evidence.open(call) else { return door.budget.settle(hold, Some(0), Some(0.0)) };
    let mut passed = match send(trial, door, admitted, kinds) {
        Ok(answer) => {
            trial.evidence.first_byte(id);
            stream::pass(disturbed::disturb(answer, kinds, &trial.life), admitted, &door.plan.rule, reply)
        }
        Err(failure) => no_answer(door.plan.dialect(), failure, reply),
    };
    let is_nothing = passed.usage.is_none() && passed.unknown.is_none();
    let tokens = passed.usage.map(|usage| usage.input.saturating_add(usage.output)).or(is_nothing.then_some(0));
    let cost = cost(door, admitted, &passed).or(is_nothing.then_some(0.0));
    if cost.is_none() && passed.unknown.is_none() {
        let model = passed.served.as_ref().or(admitted.asked.model.as_ref()).map_or("no model", String::as_str);
        passed.unknown = Some(format!("no price for {model}"));
    }
    door.budget.settle(hold, tokens, cost);
    trial.evidence.close(id, &passed, cost);
}

fn send(
    trial: &Trial,
    door: &ProviderDoor,
    admitted: &Admitted,
    kinds: &[FaultKind],
) -> Result<super::Answer, Failure> {
    // What a drill cuts can be asked for again, as with a real provider: the script keeps its line.
    let keep = kinds.iter().any(|kind| matches!(kind, FaultKind::CutStream(_)));
    if trial.life.is_over() {
        return Err(Failure::StillOpen);
    }
    match &door.plan.provider {
        Provider::Upstream(upstream) => upstream.send(admitted),
        Provider::Script(script) => match script.answer(&door.cursor, admitted, &door.plan.rule.limits, keep)? {
            Some(answer) => Ok(answer),
            None => {
                let model = admitted.asked.model.as_deref().unwrap_or("no model");
                let (name, path) = (&door.plan.name, &admitted.path);
                trial.evidence.exhausted(format!("script exhausted: gateway {name}, {path}, {model}"));
                Err(Failure::ScriptExhausted)
            }
        },
    }
}

/// By the model served; the name that was asked for stands in where only that one has a price.
fn cost(door: &ProviderDoor, admitted: &Admitted, passed: &Passed) -> Option<f64> {
    let usage = passed.usage?;
    let prices = &door.plan.rule.prices;
    let by = |model: &Option<String>| price::cost(prices, model.as_deref()?, &usage);
    by(&passed.served).or_else(|| by(&admitted.asked.model))
}

/// The provider gave no answer: the target hears of it in a status that its SDK may retry.
pub(super) fn no_answer(dialect: Dialect, failure: Failure, reply: &mut Reply) -> Passed {
    let (status, code, message) = match failure {
        Failure::StillOpen => {
            reply.cut();
            return Passed { end: End::Cut, failure: Some(failure), ..Passed::none() };
        }
        Failure::ScriptExhausted => {
            (500, "crashlab_script_exhausted", "the scripted provider has no reply left that fits")
        }
        Failure::FirstByte | Failure::Idle => (504, "crashlab_upstream_timeout", "the provider did not answer in time"),
        Failure::RequestTime => (504, "crashlab_request_time", "the time for one request ran out"),
        Failure::Unreachable => (502, "crashlab_upstream_unreachable", "the provider cannot be reached"),
        Failure::Malformed | Failure::Cut | Failure::Status => {
            (502, "crashlab_upstream_malformed", "the provider's answer cannot be read")
        }
    };
    let limit = (failure == Failure::RequestTime).then_some("request_time");
    deny(dialect, &Denied::new("upstream", code, message).status(status), reply);
    let unknown =
        (failure != Failure::ScriptExhausted && failure != Failure::Unreachable).then(|| failure.as_str().to_owned());
    Passed { status, failure: Some(failure), unknown, limit, ..Passed::none() }
}
