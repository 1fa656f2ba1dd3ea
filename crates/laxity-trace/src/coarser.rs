//! A timeline with no more detail than a picture of it can show.

use crate::timeline::{Budget, JobPoint, Occupancy, Timeline};
use std::collections::BTreeMap;

impl Timeline {
    /// The same window cut into `cells` equal cells, and what is shorter than a cell put together
    /// in each: the time that a VCPU ran on a CPU becomes one interval as long as the cell, with
    /// the sum as its `ran_ns`; the jobs of a task become one point, the earliest, with their
    /// number as its `count`; a budget keeps its first, least, greatest and last point. A kind of
    /// things of which there are no more than `cells` keeps all of them.
    ///
    /// # Panics
    ///
    /// Without cells.
    #[must_use]
    pub fn coarser(self, cells: usize) -> Timeline {
        assert!(cells > 0, "a picture has a width");
        let grid = Grid {
            from_ns: self.from_ns,
            to_ns: self.to_ns,
            cells: (cells as i64).min(self.to_ns - self.from_ns),
        };
        Timeline {
            occupancy: grid.occupancy(self.occupancy),
            budgets: (self.budgets.into_iter())
                .map(|budget| grid.budget(budget))
                .collect(),
            releases: grid.jobs(self.releases),
            completions: grid.jobs(self.completions),
            misses: grid.jobs(self.misses),
            ..self
        }
    }
}

struct Grid {
    from_ns: i64,
    to_ns: i64,
    cells: i64,
}

impl Grid {
    /// Where a cell begins; the one after the last begins at the window's end.
    fn start_ns(&self, cell: i64) -> i64 {
        let span_ns = i128::from(self.to_ns - self.from_ns);
        self.from_ns + (span_ns * i128::from(cell) / i128::from(self.cells)) as i64
    }

    /// The cell of a time within the window.
    fn cell(&self, time_ns: i64) -> i64 {
        let span_ns = i128::from(self.to_ns - self.from_ns);
        let at_ns = i128::from(time_ns - self.from_ns);
        let near = ((at_ns * i128::from(self.cells) / span_ns) as i64).min(self.cells - 1);
        // Rounding may put a cell's start before the time that the division gives.
        if near + 1 < self.cells && self.start_ns(near + 1) <= time_ns {
            near + 1
        } else {
            near
        }
    }

    fn occupancy(&self, all: Vec<Occupancy>) -> Vec<Occupancy> {
        if all.len() as i64 <= self.cells {
            return all;
        }
        let cell_ns = (self.to_ns - self.from_ns) / self.cells;
        let mut exact = Vec::new();
        let mut sums: BTreeMap<(i64, u16, u16, u16), i64> = BTreeMap::new();
        for ran in all {
            if ran.end_ns - ran.start_ns > cell_ns {
                exact.push(ran);
                continue;
            }
            let (mut start_ns, mut cell) = (ran.start_ns, self.cell(ran.start_ns));
            while start_ns < ran.end_ns {
                let end_ns = ran.end_ns.min(self.start_ns(cell + 1));
                let key = (cell, ran.cpu, ran.domain, ran.vcpu);
                *sums.entry(key).or_default() += end_ns - start_ns;
                (start_ns, cell) = (end_ns, cell + 1);
            }
        }
        let of_cells = sums
            .into_iter()
            .map(|((cell, cpu, domain, vcpu), ran_ns)| Occupancy {
                cpu,
                domain,
                vcpu,
                start_ns: self.start_ns(cell),
                end_ns: self.start_ns(cell + 1),
                ran_ns,
            });
        exact.extend(of_cells);
        exact
    }

    fn jobs(&self, all: Vec<JobPoint>) -> Vec<JobPoint> {
        if all.len() as i64 <= self.cells {
            return all;
        }
        let mut first: BTreeMap<(i64, u16, u32), JobPoint> = BTreeMap::new();
        for point in all {
            let key = (self.cell(point.time_ns), point.domain, point.task);
            (first.entry(key))
                .and_modify(|known| known.count += point.count)
                .or_insert(point);
        }
        first.into_values().collect()
    }

    fn budget(&self, budget: Budget) -> Budget {
        if budget.points.len() as i64 <= self.cells {
            return budget;
        }
        let of_cells =
            (budget.points).chunk_by(|before, after| self.cell(before.0) == self.cell(after.0));
        let mut points = Vec::new();
        for of_cell in of_cells {
            let places = 0..of_cell.len();
            let mut kept = [
                places.start,
                places.clone().min_by_key(|&at| of_cell[at].1).unwrap_or(0),
                places.clone().max_by_key(|&at| of_cell[at].1).unwrap_or(0),
                places.end - 1,
            ];
            kept.sort_unstable();
            points.extend(kept.map(|place| of_cell[place]));
        }
        points.dedup();
        Budget { points, ..budget }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(cpu: u16, domain: u16, start_ns: i64, end_ns: i64) -> Occupancy {
        Occupancy {
            cpu,
            domain,
            vcpu: 0,
            start_ns,
            end_ns,
            ran_ns: end_ns - start_ns,
        }
    }

    fn point(time_ns: i64, task: u32) -> JobPoint {
        JobPoint {
            time_ns,
            domain: 0,
            task,
            job: time_ns as u64,
            count: 1,
        }
    }

    /// 1,000 ns; two domains in turn for 1 ns each, but for one long interval in the middle.
    fn busy() -> Timeline {
        let turns = |from: i64, to: i64| {
            (from..to).map(|at| interval(0, u16::from(at % 4 == 0), at, at + 1))
        };
        let mut occupancy: Vec<Occupancy> = turns(0, 405).collect();
        occupancy.push(interval(0, 1, 405, 600));
        occupancy.extend(turns(600, 1000));
        let steps = (0..1000).map(|at| (at, at % 50)).collect();
        Timeline {
            from_ns: 0,
            to_ns: 1000,
            occupancy,
            budgets: vec![Budget {
                domain: 0,
                vcpu: 0,
                points: steps,
            }],
            releases: (0..1000).map(|at| point(at, (at % 2) as u32)).collect(),
            completions: vec![point(1000, 0)],
            misses: vec![],
        }
    }

    #[test]
    fn no_time_and_no_job_is_lost_and_little_is_kept() {
        for cells in [1, 3, 10, 7] {
            let coarse = busy().coarser(cells);
            for domain in [0, 1] {
                let ran = |timeline: &Timeline| -> i64 {
                    (timeline.occupancy.iter())
                        .filter(|ran| ran.domain == domain)
                        .map(|ran| ran.ran_ns)
                        .sum()
                };
                assert_eq!(ran(&coarse), ran(&busy()), "{cells} cells");
            }
            assert!(coarse.occupancy.len() <= 2 * cells + 1);
            assert!((coarse.occupancy.iter()).all(|ran| ran.ran_ns <= ran.end_ns - ran.start_ns));
            let jobs: u64 = coarse.releases.iter().map(|point| point.count).sum();
            assert_eq!(jobs, 1000);
            assert!(coarse.releases.len() <= 2 * cells);
            assert!(coarse.budgets[0].points.len() <= 4 * cells);
        }
    }

    #[test]
    fn what_is_longer_than_a_cell_stays_and_extremes_stay() {
        let coarse = busy().coarser(10);
        assert!(coarse.occupancy.contains(&interval(0, 1, 405, 600)));
        let third = Occupancy {
            ran_ns: 75,
            ..interval(0, 0, 200, 300)
        };
        assert!(coarse.occupancy.contains(&third));
        assert_eq!(coarse.budgets[0].points[..3], [(0, 0), (99, 49), (100, 0)]);
        assert_eq!(coarse.completions, busy().completions, "few are all kept");
    }

    #[test]
    fn a_window_of_little_keeps_all_of_it() {
        assert_eq!(busy().coarser(1001), busy());
    }

    #[test]
    fn cells_that_do_not_divide_the_window_tile_it() {
        let grid = Grid {
            from_ns: 5,
            to_ns: 5 + 10,
            cells: 4,
        };
        let starts: Vec<i64> = (0..=4).map(|cell| grid.start_ns(cell)).collect();
        assert_eq!(starts, [5, 7, 10, 12, 15]);
        let cells: Vec<i64> = (5..=15).map(|at| grid.cell(at)).collect();
        assert_eq!(cells, [0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 3]);
    }
}
