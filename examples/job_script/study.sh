#!/bin/bash
# A job of three steps: prepare, two runs side by side, and a summary.
#
#     reshape batch examples/job_script/study.sh CASE...
#
#RESHAPE -n 4 --walltime 10:00 --name study

cases=${*:-"a b"}

# Plain commands of a script run once, on one processor.
echo "job $RESHAPE_JOB has $RESHAPE_PROCESSORS processors"

# A step on one processor. The script ends with its exit code if it fails.
reshape run -n 1 --name prepare sh -c 'echo "prepared in step $RESHAPE_STEP"' || exit

# A step for each case, side by side. Each may grow onto free processors of the machine; the case
# that finds too few idle processors in the job waits until another one has ended.
for case in $cases; do
    reshape run -n 2 --max 8 --name "$case" --output "case-$case.out" \
        python -m apps.synthetic --iterations 5 --seconds 0.1 &
done
wait

# A step on all processors of the job.
reshape run --name summary sh -c 'test $PMI_RANK != 0 || cat case-*.out'
