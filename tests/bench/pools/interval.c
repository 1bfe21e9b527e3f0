#include "interval.h"

#include <math.h>

static double student_95(size_t freedom);

struct interval interval_of_ratio(const double *over, const double *under, size_t count)
{
    double mean = 0;
    double squares = 0;
    double half;

    if (count == 0)
        return (struct interval){NAN, NAN, NAN};
    for (size_t i = 0; i < count; i++)
        mean += log(over[i] / under[i]) / (double)count;
    if (count == 1)
        return (struct interval){exp(mean), NAN, NAN};
    for (size_t i = 0; i < count; i++)
        squares += pow(log(over[i] / under[i]) - mean, 2);
    half = student_95(count - 1) * sqrt(squares / ((double)count - 1) / (double)count);
    return (struct interval){exp(mean), exp(mean - half), exp(mean + half)};
}

/* The two-sided 95 % quantile: a table for few degrees of freedom, then Cornish and Fisher's
 * expansion around the normal one. */
static double student_95(size_t freedom)
{
    static const double few[] = {12.706, 4.303, 3.182, 2.776, 2.571};
    const double z = 1.959964;
    double n = (double)freedom;

    if (freedom <= sizeof few / sizeof *few)
        return few[freedom - 1];
    return z + (pow(z, 3) + z) / (4 * n) + (5 * pow(z, 5) + 16 * pow(z, 3) + 3 * z) / (96 * n * n);
}
