/* SPDX-License-Identifier: BSD-3-Clause */
/* A network of one hidden layer that learns which of three spirals a point is on, by Adam. */
#ifndef TRAINER_CPP_NETWORK_HPP
#define TRAINER_CPP_NETWORK_HPP

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

struct parameter {
    std::string name;
    std::size_t rows, columns;
    std::vector<float> value, gradient, exp_avg, exp_avg_sq;

    parameter(std::string its_name, std::size_t its_rows, std::size_t its_columns)
        : name(std::move(its_name)), rows(its_rows), columns(its_columns), value(rows * columns),
          gradient(rows * columns), exp_avg(rows * columns), exp_avg_sq(rows * columns)
    {
    }
};

constexpr std::size_t features = 2, hidden = 24, classes = 3, samples = 48;

/* Points and their classes; the position in the random numbers is part of a checkpoint. */
struct batch {
    std::vector<float> points = std::vector<float>(samples * features);
    std::vector<std::size_t> labels = std::vector<std::size_t>(samples);

    template <class Random> void draw(Random &random)
    {
        auto uniform = [&random] { return static_cast<float>(random() >> 8) * 0x1p-24F; };
        for (std::size_t s = 0; s < samples; s++) {
            float radius = uniform();
            float angle =
                2.0943951F * static_cast<float>(s % classes) + 4 * radius + 0.3F * uniform();
            points[s * features] = radius * std::sin(angle);
            points[s * features + 1] = radius * std::cos(angle);
            labels[s] = s % classes;
        }
    }
};

class network
{
  public:
    std::vector<parameter> parameters{{"0.weight", hidden, features},
                                      {"0.bias", hidden, 1},
                                      {"2.weight", classes, hidden},
                                      {"2.bias", classes, 1}};

    template <class Random> explicit network(Random &random)
    {
        for (parameter &each : parameters)
            for (float &value : each.value)
                value = each.columns == 1 ? 0 : static_cast<float>(random() >> 8) * 0x1p-23F - 1;
    }

    /* Gradients of the mean loss, which it returns. */
    double gradients(const batch &batch)
    {
        double loss = 0;
        for (parameter &each : parameters)
            each.gradient.assign(each.gradient.size(), 0);
        for (std::size_t s = 0; s < samples; s++)
            loss += sample(&batch.points[s * features], batch.labels[s]);
        return loss / samples;
    }

    void adam(double rate, std::int64_t step)
    {
        double first = 1 - std::pow(0.9, static_cast<double>(step));
        double second = 1 - std::pow(0.999, static_cast<double>(step));
        for (parameter &each : parameters)
            for (std::size_t i = 0; i < each.value.size(); i++) {
                float gradient = each.gradient[i] / samples;
                each.exp_avg[i] = 0.9F * each.exp_avg[i] + 0.1F * gradient;
                each.exp_avg_sq[i] = 0.999F * each.exp_avg_sq[i] + 0.001F * gradient * gradient;
                each.value[i] -=
                    static_cast<float>(rate * (each.exp_avg[i] / first) /
                                       (std::sqrt(each.exp_avg_sq[i] / second) + 1e-8));
            }
    }

  private:
    double sample(const float *point, std::size_t label)
    {
        float units[hidden], deltas[classes], sum = 0;
        for (std::size_t h = 0; h < hidden; h++) {
            units[h] = parameters[1].value[h];
            for (std::size_t f = 0; f < features; f++)
                units[h] += parameters[0].value[h * features + f] * point[f];
            units[h] = std::fmax(units[h], 0.0F);
        }
        for (std::size_t c = 0; c < classes; c++) {
            deltas[c] = parameters[3].value[c];
            for (std::size_t h = 0; h < hidden; h++)
                deltas[c] += parameters[2].value[c * hidden + h] * units[h];
            sum += deltas[c] = std::exp(deltas[c]);
        }
        double loss = -std::log(static_cast<double>(deltas[label] / sum));
        for (std::size_t c = 0; c < classes; c++)
            deltas[c] = deltas[c] / sum - (c == label ? 1.0F : 0.0F);
        backward(point, units, deltas);
        return loss;
    }

    void backward(const float *point, const float *units, const float *deltas)
    {
        for (std::size_t h = 0; h < hidden; h++) {
            float delta = 0;
            for (std::size_t c = 0; c < classes; c++) {
                parameters[2].gradient[c * hidden + h] += deltas[c] * units[h];
                delta += units[h] > 0 ? deltas[c] * parameters[2].value[c * hidden + h] : 0;
            }
            parameters[1].gradient[h] += delta;
            for (std::size_t f = 0; f < features; f++)
                parameters[0].gradient[h * features + f] += delta * point[f];
        }
        for (std::size_t c = 0; c < classes; c++)
            parameters[3].gradient[c] += deltas[c];
    }
};

#endif
