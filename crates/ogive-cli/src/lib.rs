//! The program ogive: run, chat, inspect, measure.
