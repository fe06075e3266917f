"""The runtime without ROS: standing questions about frames that are pushed into it."""

import time

from vlm_decisions.engine import Engine
from vlm_decisions.frames import Frame
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question
from vlm_decisions.runtime import Runtime
from vlm_decisions.sim.script import Script
from vlm_decisions.sim.world import World

book = QuestionBook([Question("person", "Is a person present?", rate_hz=2.0)])
runtime = Runtime(lambda: Engine.load("sim_desk"), book, on_decision=lambda d: print(
    f"{d.question_id:16} {d.answer:10} p = {d.p:.3f}, {1e3 * d.age_s:.0f} ms old"))
runtime.start()
runtime.wait_ready()

world = World(seed=1, script=Script.demo(1))
for k in range(30):  # a camera of 10 frames a second
    runtime.push(Frame(world.render(4.0 + k / 10, 320, 240), stamp_ns=time.time_ns()))
    time.sleep(0.1)
runtime.stop()
