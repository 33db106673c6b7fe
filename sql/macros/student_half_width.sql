-- student_half_width: half of the 95 % interval of a mean by Student's t: of values that vary by chance alone, such as days.
-- units: those of x
-- Null for a single value. The list has the 97.5 % quantiles of 1 to 30 degrees of freedom (tests/test_unseen_days.py compares
-- them with scipy); more of them have the last one, which is at most 4 % too large.
create or replace macro student_half_width(x) as
    [
        12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448, 2.1314,
        2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423
    ][least(count(x) - 1, 30)] * stddev_samp(x) / sqrt(count(x));
