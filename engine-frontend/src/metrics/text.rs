//! The text format of Prometheus, as far as it is needed here.

use std::collections::HashMap;
use std::fmt::{Display, Write};

use super::Histogram;

/// Collects families of samples. `labels` are those that every sample has. A family comes once in the text,
/// however often and with whichever labels it is begun.
#[derive(Debug)]
pub(super) struct TextWriter {
    /// The text of each family, in the order in which they were first begun.
    families: Vec<String>,
    /// Each family's place among them, by its name.
    places: HashMap<String, usize>,
    /// The place of the one that was begun last.
    current: usize,
    labels: Vec<(&'static str, String)>,
}

impl TextWriter {
    pub(super) fn new(labels: Vec<(&'static str, String)>) -> Self {
        Self {
            families: Vec::new(),
            places: HashMap::new(),
            current: 0,
            labels,
        }
    }

    /// Gives samples these labels from now on.
    pub(super) fn set_labels(&mut self, labels: Vec<(&'static str, String)>) {
        self.labels = labels;
    }

    pub(super) fn finish(self) -> String {
        self.families.concat()
    }

    /// Starts a family, or goes on with it. Its samples must follow.
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        if let Some(place) = self.places.get(name) {
            self.current = *place;
            return;
        }
        self.current = self.families.len();
        self.places.insert(name.to_owned(), self.current);
        let header = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        self.families.push(header);
    }

    /// One sample with labels of its own.
    pub(super) fn sample(&mut self, name: &str, own: &[(&str, &str)], value: impl Display) {
        let Some(text) = self.families.get_mut(self.current) else {
            return;
        };
        text.push_str(name);
        let labels = self.labels.iter().map(|(k, v)| (*k, v.as_str()));
        for (i, (key, label)) in labels.chain(own.iter().copied()).enumerate() {
            let label = label
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let open = if i == 0 { '{' } else { ',' };
            let _ = write!(text, "{open}{key}=\"{label}\"");
        }
        if !self.labels.is_empty() || !own.is_empty() {
            text.push('}');
        }
        let _ = writeln!(text, " {value}");
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    /// A counter; its sample's name ends in `_total`, as Prometheus has it.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        let name = format!("{name}_total");
        self.family(&name, "counter", help);
        self.sample(&name, &[], value);
    }

    pub(super) fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.family(name, "histogram", help);
        self.histogram_samples(name, &[], histogram);
    }

    /// The samples of a histogram with labels of its own.
    pub(super) fn histogram_samples(
        &mut self,
        name: &str,
        own: &[(&str, &str)],
        histogram: &Histogram,
    ) {
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.cumulative() {
            let bound = match bound {
                f64::INFINITY => "+Inf".to_owned(),
                // As the Python client writes them.
                bound => format!("{bound:?}"),
            };
            let labels: Vec<_> = own
                .iter()
                .copied()
                .chain([("le", bound.as_str())])
                .collect();
            self.sample(&bucket, &labels, count);
        }
        self.sample(&format!("{name}_sum"), own, histogram.sum());
        self.sample(&format!("{name}_count"), own, histogram.count());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_and_histograms() {
        let mut histogram = Histogram::new([0.5, 1.0]);
        for value in [0.1, 0.5, 0.7, 3.0] {
            histogram.observe(value);
        }
        let mut text = TextWriter::new(vec![("model_name", "a\"b".to_owned())]);
        text.counter("x:tokens", "Tokens.", 3);
        text.histogram("x:time", "Time.", &histogram);
        assert_eq!(
            text.finish(),
            "# HELP x:tokens_total Tokens.\n\
             # TYPE x:tokens_total counter\n\
             x:tokens_total{model_name=\"a\\\"b\"} 3\n\
             # HELP x:time Time.\n\
             # TYPE x:time histogram\n\
             x:time_bucket{model_name=\"a\\\"b\",le=\"0.5\"} 2\n\
             x:time_bucket{model_name=\"a\\\"b\",le=\"1.0\"} 3\n\
             x:time_bucket{model_name=\"a\\\"b\",le=\"+Inf\"} 4\n\
             x:time_sum{model_name=\"a\\\"b\"} 4.3\n\
             x:time_count{model_name=\"a\\\"b\"} 4\n"
        );
    }
}
