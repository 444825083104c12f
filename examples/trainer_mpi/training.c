/* SPDX-License-Identifier: BSD-3-Clause */
#include "training.h"

#include <math.h>
#include <string.h>

#include "fixed_point.h"

enum { WARM_UP = 10, HORIZON = 400 };
static const double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;

static void gather_parameters(struct training *training)
{
    int rank = (int)training->model.mesh.rank;

    for (int i = 0; i < PARAMETER_COUNT; i++) {
        struct parameter *p = &training->model.parameters[i];
        MPI_Allgatherv(p->value, p->counts[rank], MPI_FLOAT, p->whole, p->counts, p->starts,
                       MPI_FLOAT, training->communicator);
        memset(p->fixed_sum, 0, (size_t)(p->rows * p->columns) * sizeof(int64_t));
    }
}

static void update_parameter(struct parameter *p, int own, const struct schedule *schedule)
{
    double correction1 = 1 - pow(beta1, (double)schedule->step);
    double correction2 = 1 - pow(beta2, (double)schedule->step);

    for (int i = 0; i < own; i++) {
        double gradient = fixed_to(p->fixed_gradient[i]) / MICRO_BATCHES;
        double first = beta1 * (double)p->exp_avg[i] + (1 - beta1) * gradient;
        double second = beta2 * (double)p->exp_avg_sq[i] + (1 - beta2) * gradient * gradient;
        p->exp_avg[i] = (float)first;
        p->exp_avg_sq[i] = (float)second;
        double change = first / correction1 / (sqrt(second / correction2) + epsilon);
        p->value[i] = (float)((double)p->value[i] - schedule->rate * change);
    }
}

static void advance_schedule(struct schedule *schedule)
{
    double step = (double)++schedule->step;
    double warm = fmin(step / WARM_UP, 1);

    schedule->rate = schedule->base_rate * warm * (0.5 + 0.5 * cos(M_PI * step / HORIZON));
}

double training_step(struct training *training)
{
    struct micro_batch batch[MICRO_BATCHES];
    int rank = (int)training->model.mesh.rank;
    int ranks = (int)training->model.mesh.shape[0];
    int64_t loss = 0;

    gather_parameters(training);
    spirals_draw(&training->data, batch);
    for (int m = rank; m < MICRO_BATCHES; m += ranks)
        loss += fixed_from(model_accumulate(&training->model, &batch[m]));
    MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_INT64_T, MPI_SUM, training->communicator);

    advance_schedule(&training->schedule);
    dcp_run_wait_staged(training->run); /* a save may be copying what is about to change */
    for (int i = 0; i < PARAMETER_COUNT; i++) {
        struct parameter *p = &training->model.parameters[i];
        MPI_Reduce_scatter(p->fixed_sum, p->fixed_gradient, p->counts, MPI_INT64_T, MPI_SUM,
                           training->communicator);
        update_parameter(p, p->counts[rank], &training->schedule);
    }
    training->step++;
    return fixed_to(loss) / MICRO_BATCHES;
}
