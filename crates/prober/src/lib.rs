//! TCP health checks: thresholds and timetable (pure), and the engine that runs them.
