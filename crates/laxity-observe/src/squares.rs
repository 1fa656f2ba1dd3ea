//! Costs of tasks from the work of busy periods: least squares without negative costs.

/// What [`Sums::fit`] finds.
#[derive(Debug, Clone)]
pub struct Fit {
    /// A number for each column, 0 for those that are not used.
    pub found: Vec<f64>,
    /// How much is known of the last one: its variance is that of the rows divided by this. 0 if nothing is.
    pub last_weight: f64,
}

/// The normal equations of rows that are sums over columns.
pub struct Sums {
    gram: Vec<Vec<f64>>,
    right: Vec<f64>,
}

impl Sums {
    /// Rows that are nearly `of`, each as much as it weighs. `columns` are sparse: for each unknown, the rows that
    /// count it, and how often.
    pub fn new(columns: &[&[(u32, u32)]], of: &[f64], weights: &[f64]) -> Sums {
        let count = columns.len();
        let mut gram = vec![vec![0.0; count]; count];
        let mut right = vec![0.0; count];
        let mut dense = vec![0.0; of.len()];
        for a in 0..count {
            for &(row, times) in columns[a] {
                dense[row as usize] = f64::from(times) * weights[row as usize];
                right[a] += dense[row as usize] * of[row as usize];
            }
            for b in 0..=a {
                gram[a][b] = (columns[b].iter())
                    .map(|&(row, times)| dense[row as usize] * f64::from(times))
                    .sum();
                gram[b][a] = gram[a][b];
            }
            for &(row, _) in columns[a] {
                dense[row as usize] = 0.0;
            }
        }
        Sums { gram, right }
    }

    /// The numbers, one for each of the used columns and none negative, with which the sums are nearest to the rows in
    /// the sum of squares. The last of all columns gets what the others cannot say as well.
    ///
    /// Unknowns that would be negative are 0, the most negative first; this is the active-set method, without its
    /// return of dropped unknowns, which none of the sums of non-negative costs needs.
    pub fn fit(&self, used: &[usize]) -> Fit {
        let mut found = vec![0.0; self.right.len()];
        let mut last_weight = 0.0;
        let mut used = used.to_vec();
        while !used.is_empty() {
            let solution;
            (solution, last_weight) = self.solve(&used);
            let least = (0..used.len())
                .min_by(|&a, &b| solution[a].total_cmp(&solution[b]))
                .unwrap_or(0);
            if solution[least] >= 0.0 {
                for (&index, value) in used.iter().zip(solution) {
                    found[index] = value;
                }
                break;
            }
            used.remove(least);
        }
        Fit { found, last_weight }
    }

    /// Gauss elimination with pivots on the diagonal, and the weight of the last column (see [`Fit`]). A column that
    /// others already make up gets 0.
    fn solve(&self, used: &[usize]) -> (Vec<f64>, f64) {
        let Sums { gram, right } = self;
        let last = right.len() - 1;
        let mut last_weight = 0.0;
        let count = used.len();
        let mut rows: Vec<Vec<f64>> = (used.iter())
            .map(|&a| used.iter().map(|&b| gram[a][b]).chain([right[a]]).collect())
            .collect();
        let mut is_free = vec![true; count];
        let mut is_made_up = vec![false; count];
        for _ in 0..count {
            let Some(pivot) = (0..count).filter(|&index| is_free[index]).max_by(|&a, &b| {
                let is_other = |index: usize| used[index] != last;
                (is_other(a).cmp(&is_other(b))).then(rows[a][a].total_cmp(&rows[b][b]))
            }) else {
                break;
            };
            is_free[pivot] = false;
            if rows[pivot][pivot] <= 1e-9 * gram[used[pivot]][used[pivot]] {
                is_made_up[pivot] = true;
                continue;
            }
            if used[pivot] == last {
                last_weight = rows[pivot][pivot];
            }
            let pivot_row = rows[pivot].clone();
            for (index, row) in rows.iter_mut().enumerate() {
                let factor = row[pivot] / pivot_row[pivot];
                if index != pivot && factor != 0.0 {
                    for (value, pivot) in row.iter_mut().zip(&pivot_row) {
                        *value -= factor * pivot;
                    }
                }
            }
        }
        let solution = (0..count)
            .map(|index| {
                if is_made_up[index] {
                    0.0
                } else {
                    rows[index][count] / rows[index][index]
                }
            })
            .collect();
        (solution, last_weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &[(u32, u32)] = &[(0, 1)];
    const BOTH: &[(u32, u32)] = &[(0, 1), (1, 1)];

    fn fit<const C: usize, const R: usize>(columns: [&[(u32, u32)]; C], of: [f64; R]) -> Fit {
        Sums::new(&columns, &of, &[2.0; R]).fit(&std::array::from_fn::<usize, C, _>(|index| index))
    }

    #[test]
    fn exact_sums_give_back_what_they_are_made_of() {
        let columns: [&[(u32, u32)]; 3] = [&[(0, 1), (1, 1), (2, 2)], &[(1, 1)], &[(2, 1), (3, 3)]];
        let Fit { found, .. } = fit(columns, [5.0, 7.0, 11.0, 3.0]);
        for (value, expected) in found.iter().zip([5.0, 2.0, 1.0]) {
            assert!((value - expected).abs() < 1e-9, "{found:?}");
        }
    }

    #[test]
    fn nothing_is_negative_and_what_is_told_twice_is_not_of_the_last() {
        let Fit { found, .. } = fit([BOTH, ONE], [1.0, 4.0]);
        assert!(found[1] == 0.0 && found[0] > 0.0, "{found:?}");
        let twice = fit([BOTH, BOTH], [3.0, 3.0]);
        assert!((twice.found[0] - 3.0).abs() < 1e-9, "{twice:?}");
        assert!(
            twice.found[1] == 0.0 && twice.last_weight == 0.0,
            "{twice:?}"
        );
    }

    #[test]
    fn how_much_is_known_of_the_last_grows_with_the_rows_that_only_it_has() {
        let weight = |of: &[(u32, u32)]| fit([&[(0, 1), (1, 1), (2, 1)], of], [1.0; 4]).last_weight;
        assert!((weight(&[(3, 1)]) - 2.0).abs() < 1e-9);
        assert!(weight(&[(2, 1), (3, 1)]) > weight(&[(3, 1)]));
    }
}
