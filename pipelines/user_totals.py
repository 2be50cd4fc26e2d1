"""What each user has paid so far, with every paid order: a program of the DataStream API."""

from flowrun.datastream import StreamExecutionEnvironment, WatermarkStrategy

env = StreamExecutionEnvironment("user-totals")
samples, out = env.variables.get("SAMPLES", "samples"), env.variables.get("OUT", "out")

orders = env.from_connector(
    "filesystem",
    "order_id BIGINT, user_id STRING, amount DOUBLE, status STRING, ts TIMESTAMP(3)",
    {"path": f"{samples}/orders/"},
    format="json",
    name="orders",
)
timed = orders.assign_timestamps_and_watermarks(WatermarkStrategy.bounded(5_000), "ts")
paid = timed.filter(lambda row: row["status"] == "paid").select("user_id", "amount")
totals = paid.key_by("user_id").sum("amount").uid("totals")
totals.to_connector(
    "filesystem", {"path": f"{out}/user_totals/", "sink.mode": "overwrite"}, format="json", name="out"
).uid("out")

if __name__ == "__main__":
    env.execute()
