accelerate launch --config_file zero3.yaml sft.py \
    --model_name_or_path meta-llama/Llama-2-7b --per_device_train_batch_size 4 --learning_rate 1e-4 \
    --use_peft True --lora_r 32 --max_seq_length 2048 --num_train_epochs 1 --gradient_checkpointing True --report_to none --output_dir out
