"""What a schedule is predicted to take, from its bytes and its chain of hand-offs. Nothing here is measured.

prediction = predict(program, pos=1024)
print(prediction.ms_per_token, prediction.text())
"""

from amk.cost.calibration import Calibration, load
from amk.cost.plan import StuckPlanError, plan_of
from amk.cost.predict import Prediction, predict

__all__ = ["Calibration", "Prediction", "StuckPlanError", "load", "plan_of", "predict"]
