//! Costs of tasks from the work of busy periods: least squares without negative costs.

/// The numbers `x`, none negative, for which the sums of `x` over the columns that each row counts are nearest to `of`
/// in the sum of squares. `columns` are sparse: for each unknown, the rows that count it, and how often.
///
/// Unknowns that would be negative are 0, the most negative first; this is the active-set method, without its return of
/// dropped unknowns, which none of the sums of non-negative costs needs.
pub fn fit(columns: &[Vec<(u32, u32)>], of: &[f64]) -> Vec<f64> {
    let mut found = vec![0.0; columns.len()];
    let mut used: Vec<usize> = (0..columns.len())
        .filter(|&index| !columns[index].is_empty())
        .collect();
    let mut dense = vec![0.0; of.len()];
    let count = columns.len();
    let mut gram = vec![vec![0.0; count]; count];
    let mut right = vec![0.0; count];
    for &a in &used {
        for &(row, times) in &columns[a] {
            dense[row as usize] = f64::from(times);
            right[a] += f64::from(times) * of[row as usize];
        }
        for &b in &used {
            gram[a][b] = (columns[b].iter())
                .map(|&(row, times)| dense[row as usize] * f64::from(times))
                .sum();
        }
        for &(row, _) in &columns[a] {
            dense[row as usize] = 0.0;
        }
    }
    while !used.is_empty() {
        let solution = solve(&gram, &right, &used);
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
    found
}

/// Gauss elimination with pivots on the diagonal. A column that others already make up gets 0.
fn solve(gram: &[Vec<f64>], right: &[f64], used: &[usize]) -> Vec<f64> {
    let count = used.len();
    let mut rows: Vec<Vec<f64>> = (used.iter())
        .map(|&a| used.iter().map(|&b| gram[a][b]).chain([right[a]]).collect())
        .collect();
    let mut is_free = vec![true; count];
    for _ in 0..count {
        let Some(pivot) = (0..count)
            .filter(|&index| is_free[index])
            .max_by(|&a, &b| rows[a][a].total_cmp(&rows[b][b]))
        else {
            break;
        };
        if rows[pivot][pivot] <= 1e-9 * gram[used[pivot]][used[pivot]] {
            break;
        }
        is_free[pivot] = false;
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
    (0..count)
        .map(|index| {
            if is_free[index] {
                0.0
            } else {
                rows[index][count] / rows[index][index]
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_sums_give_back_what_they_are_made_of() {
        let columns = [
            vec![(0, 1), (1, 1), (2, 2)],
            vec![(1, 1)],
            vec![(2, 1), (3, 3)],
        ];
        let of = [5.0, 7.0, 11.0, 3.0];
        let found = fit(&columns, &of);
        for (value, expected) in found.iter().zip([5.0, 2.0, 1.0]) {
            assert!((value - expected).abs() < 1e-9, "{found:?}");
        }
    }

    #[test]
    fn nothing_is_negative_and_what_is_told_twice_counts_once() {
        let found = fit(&[vec![(0, 1)], vec![(0, 1), (1, 1)]], &[1.0, 4.0]);
        assert!(found.iter().all(|&value| value >= 0.0), "{found:?}");
        let twice = fit(&[vec![(0, 1), (1, 1)], vec![(0, 1), (1, 1)]], &[3.0, 3.0]);
        assert!((twice[0] + twice[1] - 3.0).abs() < 1e-9, "{twice:?}");
    }
}
