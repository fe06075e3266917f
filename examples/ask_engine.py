"""The engine by itself: several questions about one second of the simulated desk."""

from vlm_decisions.engine import Engine, Query
from vlm_decisions.sim.script import Script
from vlm_decisions.sim.world import World

world = World(seed=1, script=Script.demo(1))
frames = [world.render(4.0 + k / 8, 320, 240) for k in range(8)]  # uint8 RGB, 8 a second

engine = Engine.load("sim_desk")
groups = [engine.encode(frames[k : k + 2]) for k in range(0, 8, 2)]
window = engine.window(groups, times_s=[0.0625, 0.3125, 0.5625, 0.8125])
queries = [Query("Is a person present?"), Query("Is there a cup?"), Query("Is the door open?")]
for query, readout in zip(queries, window.ask(queries)):
    print(f"{query.text:24} P(yes) = {readout.p:.3f}")
