use std::{convert::Infallible, future::poll_fn, rc::Rc, time::Duration};

use tokio::{runtime::Runtime, time};
use tower::{
    Layer, Service, ServiceExt,
    limit::{RateLimit, RateLimitLayer},
    service_fn,
};

use super::{Budget, Library, Mocked, Rule};
use crate::{answer::Answer, runtime};

/// `tower::limit::RateLimit`.
pub struct TowerLimit;

type Limited = RateLimit<tower::util::BoxService<(), (), Infallible>>;

fn layer(rule: Rule) -> RateLimitLayer {
    RateLimitLayer::new(rule.units.into(), rule.period)
}

fn limited(layer: &RateLimitLayer) -> Limited {
    let inner = service_fn(async |()| Ok::<_, Infallible>(()));
    layer.layer(tower::util::BoxService::new(inner))
}

/// Calls the service if it is ready now.
fn ask(runtime: &Runtime, service: &mut Limited) -> Answer {
    runtime.block_on(async {
        // Lets the timer find what is over.
        time::sleep(Duration::from_millis(2)).await;
        let ready =
            poll_fn(|context| std::task::Poll::Ready(service.poll_ready(context).is_ready()));
        if !ready.await {
            return Answer::Refused(None);
        }
        let Ok(()) = service.call(()).await;
        Answer::Admitted
    })
}

fn in_runtime(runtime: Rc<Runtime>, layer: &RateLimitLayer) -> Budget {
    let mut service = runtime.block_on(async { limited(layer) });
    Box::new(move |_, _| ask(&runtime, &mut service))
}

impl Library for TowerLimit {
    fn package(&self) -> &'static str {
        "tower"
    }

    fn minimal(&self) -> &'static str {
        r#"features = ["limit"]"#
    }

    fn budget(&self, rule: Rule, _keys: Option<usize>) -> Budget {
        in_runtime(Rc::new(runtime::current_thread()), &layer(rule))
    }

    fn without_runtime(&self, rule: Rule) -> Budget {
        let mut service = limited(&layer(rule));
        Box::new(move |_, _| {
            let called =
                futures_executor::block_on(async { service.ready().await?.call(()).await });
            let Ok(()) = called;
            Answer::Admitted
        })
    }

    fn layer(&self, rule: Rule) -> Option<Box<dyn Fn() -> Budget>> {
        let layer = layer(rule);
        Some(Box::new(move || {
            in_runtime(Rc::new(runtime::current_thread()), &layer)
        }))
    }

    fn waiting(&self, rule: Rule) -> Option<Box<dyn FnMut()>> {
        let runtime = runtime::current_thread();
        let mut service = runtime.block_on(async { limited(&layer(rule)) });
        Some(Box::new(move || {
            let Ok(()) = runtime.block_on(async { service.ready().await?.call(()).await });
        }))
    }

    fn mocked(&self, rule: Rule) -> Option<Mocked> {
        let runtime = Rc::new(runtime::paused());
        Some(Mocked {
            budget: in_runtime(Rc::clone(&runtime), &layer(rule)),
            advance: Box::new(move |by| runtime.block_on(time::advance(by))),
        })
    }

    fn algorithms(&self, rule: Rule) -> Vec<(&'static str, Budget)> {
        vec![("fixed window", self.budget(rule, None))]
    }
}
