#include "base/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace baton {

const std::vector<double> kTtftSecondsEdges = {.001, .005, .01, .02, .04, .06, .08, .1,
                                               .25,  .5,   .75, 1,   2.5, 5,   7.5, 10,
                                               20,   40,   80,  160, 640, 2560};
const std::vector<double> kInterTokenSecondsEdges = {.002, .004, .006, .008, .01, .025, .05, .075,
                                                     .1,   .15,  .2,   .3,   .4,  .5,   .75, 1,
                                                     2.5,  5,    7.5,  10,   20,  40,   80};
const std::vector<double> kRequestSecondsEdges = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                                  30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const std::vector<double> kStepTokensEdges = {1,   8,    16,   32,   64,   128,  256,
                                              512, 1024, 2048, 4096, 8192, 16384};

std::vector<double> token_count_edges(int64_t tokens_max) {
  std::vector<double> edges;
  for (int64_t decade = 1; decade < tokens_max; decade *= 10)
    for (const int64_t step : {1, 2, 5})
      if (step * decade < tokens_max) edges.push_back(static_cast<double>(step * decade));
  edges.push_back(static_cast<double>(tokens_max));
  return edges;
}

void Counter::add(double count) {
  series_->Increment(count);
}
void Gauge::set(double value) {
  series_->Set(value);
}
void Gauge::add(double delta) {
  series_->Increment(delta);
}
void Histogram::observe(double value) {
  series_->Observe(value);
}

class MetricRegistry::Impl {
 public:
  explicit Impl(MetricLabels common) : common_(std::move(common)) {}

  MetricLabels with_common(MetricLabels labels) const {
    labels.insert(common_.begin(), common_.end());
    return labels;
  }

  // Asking for a family again gives the one that is there.
  prometheus::Registry registry{prometheus::Registry::InsertBehavior::Merge};

 private:
  const MetricLabels common_;
};

MetricRegistry::MetricRegistry(MetricLabels common)
    : impl_(std::make_unique<Impl>(std::move(common))) {}

MetricRegistry::~MetricRegistry() = default;

Counter MetricRegistry::counter(const std::string& name, const std::string& help,
                                const MetricLabels& labels) {
  auto& family = prometheus::BuildCounter().Name(name).Help(help).Register(impl_->registry);
  return Counter(family.Add(impl_->with_common(labels)));
}

Gauge MetricRegistry::gauge(const std::string& name, const std::string& help,
                            const MetricLabels& labels) {
  auto& family = prometheus::BuildGauge().Name(name).Help(help).Register(impl_->registry);
  return Gauge(family.Add(impl_->with_common(labels)));
}

Histogram MetricRegistry::histogram(const std::string& name, const std::string& help,
                                    const std::vector<double>& edges, const MetricLabels& labels) {
  auto& family = prometheus::BuildHistogram().Name(name).Help(help).Register(impl_->registry);
  return Histogram(family.Add(impl_->with_common(labels), edges));
}

std::string MetricRegistry::text() const {
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace baton
